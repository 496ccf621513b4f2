"""Which labels a LabelSelector means."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mini_cluster.history import Object

Labels = Mapping[str, str]


def selects(selector: Object, labels: Labels) -> bool:
    """True if all of `matchLabels` and `matchExpressions` hold. An empty selector means all."""
    wanted = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or []
    return has_all(wanted, labels) and all(_holds(rule, labels) for rule in rules)


def has_all(wanted: Labels, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _holds(rule: Object, labels: Labels) -> bool:
    key, values = rule["key"], rule.get("values", [])
    match rule["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"{rule['operator']} is no operator of a label selector")
