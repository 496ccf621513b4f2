"""Whether a pod may be evicted now: what every disruption budget that covers it has left."""

from __future__ import annotations

import math

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.selectors import selects

BUDGETS = "poddisruptionbudgets.policy"
_OWNERS = {
    "ReplicaSet": "replicasets.apps",
    "StatefulSet": "statefulsets.apps",
    "Job": "jobs.batch",
}


def refuse_eviction(store: ObjectStore, pod: Object) -> None:
    """Refusal 429 where a budget would be broken. What waits, leaves or has ended costs none; what
    is not ready goes where its budget is kept without it, or says so (AlwaysAllow)."""
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata or _is_idle(pod):
        return
    for budget in store.select(BUDGETS, metadata["namespace"]):
        if selects(budget["spec"].get("selector"), metadata.get("labels")):
            status = disruptions(store, budget)
            if is_ready(pod) or not _lets_sick_go(budget, status):
                _refuse(budget, status)


def _is_idle(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Pending", "Succeeded", "Failed")


def _lets_sick_go(budget: Object, status: Object) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return bool(status["currentHealthy"] >= status["desiredHealthy"] > 0)


def disruptions(store: ObjectStore, budget: Object) -> Object:
    """The budget's status as its controller would write it."""
    namespace = budget["metadata"]["namespace"]
    selector = budget["spec"].get("selector")
    pods = [
        pod
        for pod in store.select("pods", namespace)
        if selects(selector, pod["metadata"].get("labels"))
    ]
    healthy = sum(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
    expected = _expected(store, pods)
    desired = _desired(budget["spec"], expected)
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - desired),
        "observedGeneration": budget["metadata"]["generation"],
    }


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _expected(store: ObjectStore, pods: list[Object]) -> int:
    """What the pods' controllers want; a pod of its own counts as one."""
    wanted = 0
    controllers = set()
    for pod in pods:
        owner = next(iter(pod["metadata"].get("ownerReferences", ())), None)
        if owner is None or owner["kind"] not in _OWNERS:
            wanted += 1
        else:
            controllers.add((_OWNERS[owner["kind"]], pod["metadata"]["namespace"], owner["name"]))
    found = filter(None, (store.find(*key) for key in controllers))
    return wanted + sum(int(each["spec"].get("replicas", 1)) for each in found)


def _desired(spec: Object, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - _share(spec["maxUnavailable"], expected))
    return _share(spec.get("minAvailable", 1), expected)


def _share(value: int | str, whole: int) -> int:
    """A percentage is rounded up, as the real one does for both bounds."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * whole / 100)
    return int(value)


def _refuse(budget: Object, status: Object) -> None:
    if status["disruptionsAllowed"]:
        return
    name, needed, has = (
        budget["metadata"]["name"],
        status["desiredHealthy"],
        status["currentHealthy"],
    )
    cause = f"The disruption budget {name} needs {needed} healthy pods and has {has} currently"
    raise Refusal(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[{"reason": "DisruptionBudget", "message": cause}],
    )
