"""What the quotas of a namespace leave for new pods. Pure.

The API server judges a pod when it is made, long after its Deployment was scaled; this is before.
What a LimitRange adds to pods is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cluster.scaling.groups import Object
from cluster.scaling.pod_needs import added, pod_needs
from cluster.scaling.pool_growth import PoolGrowth
from cluster.scaling.quantity import in_words, quantity


def quota_refusals(quotas: Sequence[Object], growths: Sequence[PoolGrowth]) -> list[str]:
    """One for each resource that all of them together would take too much of; who leaves gives it
    back. Raises ValueError for an amount that is none."""
    return [text for quota in quotas for text in _refusals(quota, growths)]


def _refusals(quota: Object, growths: Sequence[PoolGrowth]) -> list[str]:
    status = quota.get("status") or {}
    hard = status.get("hard") or quota["spec"].get("hard") or {}
    used = status.get("used") or {}
    asked = {growth.pool: _of_a_worker(quota, growth) for growth in growths if growth.num_new}
    texts = []
    for resource, limit in hard.items():
        left = quantity(limit) - quantity(used.get(resource, 0))
        wanted = {
            growth.pool: asked[growth.pool].get(resource, Fraction(0)) * growth.num_new
            for growth in growths
            if growth.pool in asked
        }
        whole = sum(wanted.values(), Fraction(0))
        if whole > max(left, Fraction(0)):
            amounts = (used.get(resource, 0), limit)
            numbers = " of ".join(in_words(resource, quantity(each)) for each in amounts)
            texts.append(
                f"quota {quota['metadata']['name']}: {numbers} {resource} are used, and "
                f"{_who(growths, wanted)} ask for {in_words(resource, whole)} more"
                f"{_room(growths, asked, resource, left)}"
            )
    return texts


def _of_a_worker(quota: Object, growth: PoolGrowth) -> dict[str, Fraction]:
    counted = [pod for pod in growth.pods if _is_counted(quota["spec"], pod)]
    return added(*(pod_needs(pod).of_quota() for pod in counted))


def _who(growths: Sequence[PoolGrowth], wanted: dict[str, Fraction]) -> str:
    asking = [each for each in growths if wanted.get(each.pool, Fraction(0)) > 0]
    return " and ".join(f"{each.num_new} new of {each.pool}" for each in asking)


def _room(
    growths: Sequence[PoolGrowth],
    asked: dict[str, dict[str, Fraction]],
    resource: str,
    left: Fraction,
) -> str:
    """Of a single pool: for how many of its workers there is some."""
    named = [each.pool for each in growths if asked.get(each.pool, {}).get(resource)]
    if len(named) != 1:
        return ""
    return f": room for {max(0, left // asked[named[0]][resource])} worker(s)"


def _is_counted(spec: Object, pod: Object) -> bool:
    """Whether a quota with scopes is about this pod."""
    selector = spec.get("scopeSelector") or {}
    named = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return all(_is_in_scope(term, pod) for term in (*named, *selector.get("matchExpressions", ())))


def _is_in_scope(term: Object, pod: Object) -> bool:
    needs = pod_needs(pod)
    match term["scopeName"]:
        case "Terminating":
            return pod.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return pod.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return not (needs.requests or needs.limits)
        case "NotBestEffort":
            return bool(needs.requests or needs.limits)
        case "PriorityClass":
            return _has_class(term, pod.get("priorityClassName"))
    return False


def _has_class(term: Object, name: str | None) -> bool:
    match term["operator"]:
        case "In":
            return name in term["values"]
        case "NotIn":
            return name not in term["values"]
        case "DoesNotExist":
            return name is None
    return name is not None
