"""What a namespace's LimitRanges do to a pod that is to be made: defaults, and refusals.

Of items of the types Container and Pod: default, defaultRequest, min and max; ratios are not looked
at. Words are the real one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.quotas import amount_of, refuse_beyond_quota
from tests.mini_cluster.refusals import Refusal

RANGES = "limitranges"


def admit_pod(store: ObjectStore, pod: Object) -> None:
    """In place: what is not said is filled in. Refusal 403 beyond a range, or beyond a quota."""
    items = [
        item
        for found in store.select(RANGES, pod["metadata"]["namespace"])
        for item in found["spec"]["limits"]
    ]
    for item in items:
        if item["type"] == "Container":
            _fill(pod, item)
    if said := [text for item in items for text in _faults(pod, item)]:
        name = pod["metadata"].get("name") or pod["metadata"]["generateName"]
        words = f"[{', '.join(said)}]" if len(said) > 1 else said[0]
        raise Refusal(403, "Forbidden", f'pods "{name}" is forbidden: {words}', kind="pods")
    refuse_beyond_quota(store, pod)


def _fill(pod: Object, item: Object) -> None:
    default = {**item.get("max", {}), **item.get("default", {})}
    request = {**item.get("min", {}), **default, **item.get("defaultRequest", {})}
    for container in pod["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        limits = resources.setdefault("limits", {})
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)
        for name, amount in default.items():
            limits.setdefault(name, amount)
        for name, amount in request.items():
            requests.setdefault(name, amount)


def _faults(pod: Object, item: Object) -> Iterator[str]:
    containers = [each.get("resources", {}) for each in pod["spec"]["containers"]]
    if item["type"] == "Container":
        parts = [{key: each.get(key, {}) for key in ("requests", "limits")} for each in containers]
    else:
        parts = [{key: _sum(containers, key) for key in ("requests", "limits")}]
    for part in parts:
        for name, least in item.get("min", {}).items():
            asked = part["requests"].get(name)
            if asked is None or amount_of(asked) < amount_of(least):
                told = "No request is specified" if asked is None else f"but request is {asked}"
                yield f"minimum {name} usage per {item['type']} is {least}, {told}"
        for name, most in item.get("max", {}).items():
            limit = part["limits"].get(name)
            if limit is None or amount_of(limit) > amount_of(most):
                told = "No limit is specified" if limit is None else f"but limit is {limit}"
                yield f"maximum {name} usage per {item['type']} is {most}, {told}"


def _sum(containers: list[Object], key: str) -> Object:
    total: dict[str, Fraction] = {}
    for each in containers:
        for name, written in each.get(key, {}).items():
            total[name] = total.get(name, Fraction(0)) + amount_of(written)
    return {name: str(float(amount)) for name, amount in total.items()}
