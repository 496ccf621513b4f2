"""As many pods as a ReplicaSet asks for."""

from __future__ import annotations

from datetime import datetime

from tests.mini_cluster.children import (
    children,
    is_active,
    is_available,
    is_ready,
    new_pod,
    phase,
)
from tests.mini_cluster.conditions import condition, merged
from tests.mini_cluster.history import Object
from tests.mini_cluster.limit_ranges import admit_pod
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal

REPLICA_SETS = "replicasets.apps"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def reconcile_replica_sets(store: ObjectStore, now: datetime) -> None:
    for found in store.select(REPLICA_SETS):
        refusal = _replace(store, found)
        metadata = found["metadata"]
        pods = [pod for pod in children(store, "pods", found) if is_active(pod)]
        status = _status(found, pods, now)
        if refusal is not None:
            made = condition("ReplicaFailure", True, "FailedCreate", str(refusal))
            before = found.get("status", {}).get("conditions", [])
            status["conditions"] = merged(before, [made], now)
        store.set_status(REPLICA_SETS, metadata["namespace"], metadata["name"], status)


def _replace(store: ObjectStore, found: Object) -> Refusal | None:
    """What the API said to a pod that it was to make, if it refused one."""
    refusal = None
    pods = [pod for pod in children(store, "pods", found) if is_active(pod)]
    wanted: int = found["spec"].get("replicas", 1)
    try:
        for _ in range(wanted - len(pods)):
            pod = new_pod(found, found["metadata"]["name"] + "-")
            admit_pod(store, pod)
            store.create("pods", pod)
    except Refusal as said:
        refusal = said
    for pod in sorted(pods, key=_dearness)[: max(0, len(pods) - wanted)]:
        metadata = pod["metadata"]
        store.delete("pods", metadata["namespace"], metadata["name"])
    return refusal


def _dearness(pod: Object) -> tuple[bool, bool, bool, int, float]:
    """Who goes last: who is ready, who is dear by its annotation, who is old."""
    metadata = pod["metadata"]
    cost = int((metadata.get("annotations") or {}).get(_DELETION_COST, 0))
    born = datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").timestamp()
    has_node = bool(pod["spec"].get("nodeName"))
    return has_node, phase(pod) == "Running", is_ready(pod), cost, -born


def _status(found: Object, pods: list[Object], now: datetime) -> Object:
    min_ready_s: int = found["spec"].get("minReadySeconds", 0)
    return {
        "replicas": len(pods),
        "fullyLabeledReplicas": len(pods),
        "readyReplicas": sum(map(is_ready, pods)),
        "availableReplicas": sum(is_available(pod, min_ready_s, now) for pod in pods),
        "observedGeneration": found["metadata"]["generation"],
    }
