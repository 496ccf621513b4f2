"""Which node a pod runs on.

Nodes that are cordoned, that lack a label of `nodeSelector` or whose extended resources (GPUs) are
taken are left out; of the others the one with the fewest pods is taken. Affinities, taints, memory
and processors are not looked at.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from tests.mini_cluster.children import phase
from tests.mini_cluster.conditions import condition, merged
from tests.mini_cluster.history import Object
from tests.mini_cluster.label_selector import has_all
from tests.mini_cluster.object_store import ObjectStore

_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")


def schedule_pods(store: ObjectStore, now: datetime) -> None:
    for pod in store.select("pods", matches=lambda pod: not pod["spec"].get("nodeName")):
        metadata = pod["metadata"]
        fitting = [node for node in store.select("nodes") if _fits(store, pod, node)]
        if not fitting:
            status = _unschedulable(pod, now)
            store.set_status("pods", metadata["namespace"], metadata["name"], status)
            continue
        name = min(fitting, key=lambda node: _load(store, node))["metadata"]["name"]

        def bind(draft: Object, name: str = name) -> None:
            draft["spec"]["nodeName"] = name

        store.edit("pods", metadata["namespace"], metadata["name"], bind)


def _unschedulable(pod: Object, now: datetime) -> Object:
    status = pod.get("status", {})
    message = "no node has its labels, free devices and is not cordoned"
    made = condition("PodScheduled", False, "Unschedulable", message)
    conditions = merged(status.get("conditions", []), [made], now)
    return status | {"phase": "Pending", "conditions": conditions}


def _pods_on(store: ObjectStore, node: Object) -> list[Object]:
    name: str = node["metadata"]["name"]
    return store.select(
        "pods",
        matches=lambda pod: (
            pod["spec"].get("nodeName") == name and phase(pod) not in ("Succeeded", "Failed")
        ),
    )


def _load(store: ObjectStore, node: Object) -> int:
    return len(_pods_on(store, node))


def _fits(store: ObjectStore, pod: Object, node: Object) -> bool:
    if node.get("spec", {}).get("unschedulable"):
        return False
    wanted = pod["spec"].get("nodeSelector") or {}
    if not has_all(wanted, node["metadata"].get("labels") or {}):
        return False
    taken = sum((_devices(other) for other in _pods_on(store, node)), Counter[str]())
    there = node.get("status", {}).get("allocatable", {})
    asked = _devices(pod)
    return all(taken[key] + asked[key] <= int(there.get(key, 0)) for key in asked)


def _devices(pod: Object) -> Counter[str]:
    found: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        found.update({key: int(limits[key]) for key in limits if key not in _PLAIN})
    return found
