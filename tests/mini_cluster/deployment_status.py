"""What a Deployment says of itself: read by `helm --wait` and `kubectl rollout status`."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.mini_cluster.conditions import condition, merged
from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp
from tests.mini_cluster.rolling_update import Bounds

_DEADLINE_S = 600
_COUNTED = ("replicas", "readyReplicas", "availableReplicas")


def status_of_deployment(
    deployment: Object, sets: list[Object], current: str, now: datetime
) -> Object:
    """`current`: the name of the ReplicaSet whose template is the Deployment's now."""
    totals = {key: sum(each.get("status", {}).get(key, 0) for each in sets) for key in _COUNTED}
    (new,) = (each for each in sets if each["metadata"]["name"] == current)
    bounds = Bounds.of(deployment)
    counts = totals | {
        "updatedReplicas": new.get("status", {}).get("replicas", 0),
        "unavailableReplicas": max(0, bounds.wanted - totals["availableReplicas"]),
    }
    old = deployment.get("status", {}).get("conditions", [])
    progress = _progress(deployment, counts, bounds.wanted, now)
    failed = [each for each in new.get("status", {}).get("conditions", ()) if _has_failed(each)]
    conditions = merged(old, [_available(counts, bounds), progress, *failed], now)
    status = {"observedGeneration": deployment["metadata"]["generation"], **counts}
    return status | {"conditions": conditions}


def _has_failed(found: Object) -> bool:
    return bool(found["type"] == "ReplicaFailure" and found["status"] == "True")


def _available(counts: dict[str, int], bounds: Bounds) -> Object:
    if counts["availableReplicas"] >= bounds.wanted - bounds.unavailable:
        reason = "MinimumReplicasAvailable"
        return condition("Available", True, reason, "Deployment has minimum availability.")
    reason = "MinimumReplicasUnavailable"
    return condition("Available", False, reason, "Deployment does not have minimum availability.")


def _progress(deployment: Object, counts: dict[str, int], wanted: int, now: datetime) -> Object:
    """The time of its last progress is `lastUpdateTime`."""
    moment = _updated_at(deployment, counts, now)
    limit_s: int = deployment["spec"].get("progressDeadlineSeconds", _DEADLINE_S)
    since = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    name, is_late = deployment["metadata"]["name"], (now - since).total_seconds() > limit_s
    reason, said = "ReplicaSetUpdated", "is progressing"
    if _is_complete(counts, wanted):
        is_late, reason, said = False, "NewReplicaSetAvailable", "has successfully progressed"
    elif is_late:
        reason, said = "ProgressDeadlineExceeded", "has timed out progressing"
    made = condition("Progressing", not is_late, reason, f'Deployment "{name}" {said}.')
    return made | {"lastUpdateTime": moment}


def _is_complete(counts: dict[str, int], wanted: int) -> bool:
    return counts["replicas"] == counts["updatedReplicas"] == counts["availableReplicas"] == wanted


def _updated_at(deployment: Object, counts: dict[str, int], now: datetime) -> str:
    """Now if something has moved, else when it last did."""
    status = deployment.get("status", {})
    for found in status.get("conditions", []):
        same = all(status.get(key) == value for key, value in counts.items())
        seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
        if found["type"] == "Progressing" and same and seen:
            moment: str = found["lastUpdateTime"]
            return moment
    return timestamp(now)
