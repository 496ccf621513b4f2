"""Which objects a selector of Kubernetes means, by their labels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.scaling.groups import Object

Labels = Mapping[str, str]


def selects(selector: Object | None, labels: Labels) -> bool:
    """Of a spec's `selector`. None selects nothing, an empty one all."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    terms = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in wanted.items()) and holds(terms, labels)


def holds(terms: Iterable[Object], labels: Labels) -> bool:
    """All of these expressions; one with an operator that is not known does not."""
    return all(_holds(term, labels) for term in terms)


def _holds(term: Object, labels: Labels) -> bool:
    key: str = term["key"]
    values: list[str] = term.get("values") or []
    found = labels.get(key)
    match term["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt":
            return _number(found, 0) > _number(values[0], 0)
        case "Lt":
            return _number(found, 1) < _number(values[0], 0)
    return False


def _number(text: str | None, otherwise: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return otherwise
