"""What a namespace's pods have used of its quotas, and the refusal of a pod beyond one.

Of pods: their number, what their containers ask for and what they are limited to. Scopes are not
looked at.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tests.mini_cluster.children import phase
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal

QUOTAS = "resourcequotas"
_SAID_BY_EACH = [
    f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory")
]
_UNITS = {"": 1, "m": Fraction(1, 1000), "k": 1000, "M": 1000**2, "G": 1000**3}
_UNITS |= {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4}


def quota_status(store: ObjectStore, quota: Object) -> Object:
    """As its controller would write it: what is counted is told as a whole number, or in
    thousandths."""
    hard = quota["spec"].get("hard") or {}
    used = _used(store, quota["metadata"]["namespace"])
    return {"hard": hard, "used": {name: _told(used.get(name, Fraction(0))) for name in hard}}


def refuse_beyond_quota(store: ObjectStore, pod: Object) -> None:
    """Refusal 403 where a quota has no room for a pod that is to be made, in the real one's
    words."""
    namespace, asked = pod["metadata"]["namespace"], _of_pod(pod)
    used = _used(store, namespace)
    for quota in store.select(QUOTAS, namespace):
        hard = quota["spec"].get("hard") or {}
        _refuse_who_does_not_say(quota, pod, hard)
        beyond = [
            name
            for name in sorted(hard)
            if asked.get(name) and used.get(name, Fraction(0)) + asked[name] > amount_of(hard[name])
        ]
        if beyond:
            lists = (
                ("requested", {name: _told(asked[name]) for name in beyond}),
                ("used", {name: _told(used.get(name, Fraction(0))) for name in beyond}),
                ("limited", {name: hard[name] for name in beyond}),
            )
            numbers = ", ".join(
                f"{word}: " + ",".join(f"{name}={value}" for name, value in values.items())
                for word, values in lists
            )
            name = pod["metadata"].get("name") or pod["metadata"]["generateName"]
            said = f"exceeded quota: {quota['metadata']['name']}, {numbers}"
            raise Refusal(403, "Forbidden", f'pods "{name}" is forbidden: {said}', kind="pods")


def _refuse_who_does_not_say(quota: Object, pod: Object, hard: Object) -> None:
    missing = [
        f"{name} for: {container['name']}"
        for name in sorted(hard)
        if name in _SAID_BY_EACH
        for container in pod["spec"]["containers"]
        if name not in _of_containers([container])
    ]
    if missing:
        name = pod["metadata"].get("name") or pod["metadata"]["generateName"]
        said = f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(missing)}"
        raise Refusal(403, "Forbidden", f'pods "{name}" is forbidden: {said}', kind="pods")


def _used(store: ObjectStore, namespace: str) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for pod in store.select("pods", namespace):
        if phase(pod) not in ("Succeeded", "Failed"):
            for name, amount in _of_pod(pod).items():
                total[name] = total.get(name, Fraction(0)) + amount
    return total


def _of_pod(pod: Object) -> dict[str, Fraction]:
    once = {"pods": Fraction(1), "count/pods": Fraction(1)}
    return once | _of_containers(pod["spec"]["containers"])


def _of_containers(containers: list[Object]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for container in containers:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        for name, written in (limits | (resources.get("requests") or {})).items():
            _add(found, f"requests.{name}", written)
            if name in ("cpu", "memory"):
                _add(found, name, written)
        for name, written in limits.items():
            _add(found, f"limits.{name}", written)
    return found


def _add(found: dict[str, Fraction], name: str, written: object) -> None:
    found[name] = found.get(name, Fraction(0)) + amount_of(written)


def amount_of(written: object) -> Fraction:
    parts = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(written))
    assert parts is not None, written
    return Fraction(parts[1]) * _UNITS[parts[2]]


def _told(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{int(amount * 1000)}m"
