"""What the LimitRanges of a namespace make of a pod, and which pods they forbid. Pure.

As the API server does when a pod is made: what a container does not say is filled in, then each
container, and the pod as a whole, is held against their bounds. Quotas count what was filled in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from cluster.scaling.groups import Object
from cluster.scaling.pod_needs import PodNeeds, pod_needs
from cluster.scaling.pool_growth import PoolGrowth
from cluster.scaling.quantity import in_words, quantity

_CONTAINERS = ("initContainers", "containers")


def filled_in(ranges: Sequence[Object], growths: Sequence[PoolGrowth]) -> list[PoolGrowth]:
    """Pools whose pods say what they would say once they are made."""
    items = [item for _, item in _items(ranges) if item.get("type") == "Container"]
    if not items:
        return list(growths)
    return [replace(each, pods=[_filled(spec, items) for spec in each.pods]) for each in growths]


def limit_refusals(ranges: Sequence[Object], growths: Sequence[PoolGrowth]) -> list[str]:
    """One for each bound that pods of a growing pool are past, once they are filled in. Raises
    ValueError for an amount that is none."""
    growing = [growth for growth in growths if growth.num_new > 0]
    texts = [
        f"limit range {name}: {text}"
        for growth in growing
        for spec in growth.pods
        for name, item in _items(ranges)
        for whose, needs in _of_type(item.get("type"), growth.pool, spec)
        for text in _faults(item, whose, needs)
    ]
    if ranges:
        texts += [text for growth in growing for text in _past_their_own_limit(growth)]
    return list(dict.fromkeys(texts))  # pods of a group are mostly alike


def _items(ranges: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    for each in ranges:
        for item in each["spec"].get("limits") or ():
            yield each["metadata"]["name"], item


def _filled(spec: Object, items: Sequence[Object]) -> Object:
    made = {
        key: [_with_defaults(each, items) for each in spec[key]]
        for key in _CONTAINERS
        if spec.get(key)
    }
    return {**spec, **made}


def _with_defaults(container: Object, items: Sequence[Object]) -> Object:
    """Its own words win; a limit alone is the request as well, before anything is filled in."""
    said = container.get("resources") or {}
    limits = dict(said.get("limits") or {})
    requests = {**limits, **(said.get("requests") or {})}
    for item in items:
        limit = {**(item.get("max") or {}), **(item.get("default") or {})}
        request = {**(item.get("min") or {}), **limit, **(item.get("defaultRequest") or {})}
        limits, requests = {**limit, **limits}, {**request, **requests}
    return {**container, "resources": {**said, "limits": limits, "requests": requests}}


def _of_type(type_: object, pool: str, spec: Object) -> Iterator[tuple[str, PodNeeds]]:
    """What an item of a range is about: each container, or the pod."""
    if type_ == "Pod":
        yield f"a pod of {pool}", pod_needs(spec)
    elif type_ == "Container":
        for container in _containers(spec):
            yield f"a container of {pool}", pod_needs({"containers": [container]})


def _containers(spec: Object) -> Iterator[Object]:
    for key in _CONTAINERS:
        yield from spec.get(key) or ()


def _faults(item: Object, whose: str, needs: PodNeeds) -> Iterator[str]:
    bounds = (("min", _too_little), ("max", _too_much), ("maxLimitRequestRatio", _too_unequal))
    for name, fault in bounds:
        for resource, written in (item.get(name) or {}).items():
            if text := fault(resource, quantity(written), needs):
                yield f"{whose} {text}"


def _too_little(resource: str, least: Fraction, needs: PodNeeds) -> str:
    """Empty, as of the others: it is not."""
    asked = needs.requests.get(resource)
    if asked is not None and asked >= least:
        return ""
    return f"asks for {_told(resource, asked)}, and has to for at least {_told(resource, least)}"


def _too_much(resource: str, most: Fraction, needs: PodNeeds) -> str:
    limit = needs.limits.get(resource)
    if limit is None:
        return f"has no limit of {resource}, and may have at most {_told(resource, most)}"
    taken = max(limit, needs.requests.get(resource, limit))
    if taken <= most:
        return ""
    return f"may take {_told(resource, taken)}, and at most {_told(resource, most)} is allowed"


def _too_unequal(resource: str, most: Fraction, needs: PodNeeds) -> str:
    limit, asked = needs.limits.get(resource), needs.requests.get(resource)
    if limit is not None and asked and limit / asked <= most:
        return ""
    told = f"may take {_told(resource, limit)} and asks for {_told(resource, asked)}"
    return f"{told}: at most {float(most):g} times as much is allowed"


def _past_their_own_limit(growth: PoolGrowth) -> Iterator[str]:
    """Where what was said and what was filled in do not go together."""
    for container in (each for spec in growth.pods for each in _containers(spec)):
        needs = pod_needs({"containers": [container]})
        for resource, limit in needs.limits.items():
            asked = needs.requests.get(resource, limit)
            if asked > limit:
                yield (
                    f"a container of {growth.pool} asks for {_told(resource, asked)}, and a "
                    f"limit range lets it have {_told(resource, limit)}"
                )


def _told(resource: str, amount: Fraction | None) -> str:
    return f"no {resource}" if amount is None else f"{in_words(resource, amount)} {resource}"
