"""What the quotas of a namespace leave for new pods. Pure.

The API server judges a pod when it is made, long after its Deployment was scaled; this is before.
What a LimitRange adds to pods is in them by now (limit_ranges.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from cluster.scaling.groups import Object
from cluster.scaling.pod_needs import added, pod_needs
from cluster.scaling.pool_growth import PoolGrowth
from cluster.scaling.quantity import in_words, quantity

_SAID_BY_EACH = frozenset(
    f"{prefix}{resource}"
    for prefix in ("", "requests.", "limits.")
    for resource in ("cpu", "memory")
)
"""Resources that the API server wants of each container where a quota names them."""


def quota_refusals(quotas: Sequence[Object], growths: Sequence[PoolGrowth]) -> list[str]:
    """One for each resource that all of them together would take too much of, and for each that a
    container has to say and does not; who leaves gives it back. Raises ValueError for an amount
    that is none."""
    judges = (_unsaid, _refusals)
    return [text for quota in quotas for judge in judges for text in judge(quota, growths)]


def _unsaid(quota: Object, growths: Sequence[PoolGrowth]) -> list[str]:
    """A quota of processors or memory asks each container for its own amount."""
    asked = [name for name in _hard(quota) if name in _SAID_BY_EACH]
    missing = {
        (growth.pool, name): None
        for growth in growths
        if growth.num_new > 0
        for pod in growth.pods
        if _is_counted(quota["spec"], pod)
        for container in (*(pod.get("initContainers") or ()), *pod["containers"])
        for name in asked
        if name not in pod_needs({"containers": [container]}).of_quota()
    }
    return [
        f"quota {quota['metadata']['name']}: each container has to say {name}, and one of {pool} "
        "does not"
        for pool, name in missing
    ]


def _hard(quota: Object) -> Mapping[str, object]:
    found: Mapping[str, object] = (quota.get("status") or {}).get("hard") or {}
    return found or quota["spec"].get("hard") or {}


def _refusals(quota: Object, growths: Sequence[PoolGrowth]) -> list[str]:
    used = (quota.get("status") or {}).get("used") or {}
    asked = {growth.pool: _of_a_worker(quota, growth) for growth in growths if growth.num_new}
    texts = []
    for resource, limit in _hard(quota).items():
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
