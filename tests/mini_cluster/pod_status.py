"""What a kubelet says of a pod, from how its containers are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tests.mini_cluster.conditions import condition, merged
from tests.mini_cluster.container_run import ContainerRun
from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp


def status_of_pod(
    pod: Object,
    old: Object,
    init: Sequence[ContainerRun],
    main: Sequence[ContainerRun],
    began: datetime,
) -> Object:
    """`old` has its addresses, and since when its conditions hold."""
    are_ready = all(run.is_ready for run in main)
    conditions = [
        condition("PodScheduled", True),
        condition("Initialized", all(run.exit_code == 0 for run in init)),
        condition("ContainersReady", are_ready),
        condition("Ready", are_ready),
    ]
    return old | {
        "phase": _phase(init, main),
        "podIPs": [{"ip": old["podIP"]}],
        "hostIPs": [{"ip": old["hostIP"]}],
        "startTime": timestamp(began),
        "observedGeneration": pod["metadata"]["generation"],
        "conditions": merged(old.get("conditions", []), conditions, datetime.now(UTC)),
        "initContainerStatuses": [run.status for run in init],
        "containerStatuses": [run.status for run in main],
    }


def _phase(init: Sequence[ContainerRun], main: Sequence[ContainerRun]) -> str:
    codes = [run.exit_code for run in main]
    if any(run.exit_code for run in init):
        return "Failed"
    if None not in codes:
        return "Failed" if any(codes) else "Succeeded"
    return "Running" if all(run.has_run for run in main) else "Pending"
