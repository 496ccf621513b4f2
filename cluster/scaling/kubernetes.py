"""The Scaler of a fleet that the chart has installed: its pools are Deployments.

A pool that gets smaller loses the pods that Kubernetes chooses, and each drains before it ends.
A disruption budget guards evictions and not this: at least one worker always stays. What a quota
forbids is known when a pod is to be made; the pool says it then.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.scaling.kubernetes_api import DeploymentsApi, Object
from cluster.scaling.scaler import PoolState, ScaleOrder, ScalePlan, check_order

POOL_LABEL = "splitserve/pool"
_FAILURES = {"ReplicaFailure": "True", "Progressing": "False"}
"""Conditions of a Deployment, as they are when something is in its way."""
GPU_SUFFIX = "/gpu"
"""Of the resource by which nodes count GPUs: nvidia.com/gpu, amd.com/gpu."""


class KubernetesScaler:
    """See Scaler."""

    def __init__(self, api: DeploymentsApi, release: str) -> None:
        """`release`: of helm, or what `nameOverride` says."""
        self._api = api
        self._selector = selector_of(release)

    async def pools(self) -> Sequence[PoolState]:
        """See Scaler."""
        return [pool_state(found) for found in await self._api.deployments(self._selector)]

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        """See Scaler."""
        found = {pool_of(item): item for item in await self._api.deployments(self._selector)}
        check_order(order, list(found))
        deployment = found[order.pool]
        name, before = deployment["metadata"]["name"], deployment["spec"].get("replicas", 1)
        await self._api.patch_scale(name, order.size, is_dry_run=order.is_dry_run)
        return ScalePlan(
            pool=order.pool,
            size_before=before,
            size=order.size,
            num_gpus=max(0, order.size - before) * gpus_of_a_pod(deployment),
        )

    async def close(self) -> None:
        """See Scaler."""
        await self._api.close()


def selector_of(release: str) -> str:
    """The labels of a release's pools."""
    return f"app.kubernetes.io/name=splitserve,app.kubernetes.io/instance={release},{POOL_LABEL}"


def pool_of(deployment: Object) -> str:
    """As values.yaml names it."""
    return str(deployment["metadata"]["labels"][POOL_LABEL])


def pool_state(deployment: Object) -> PoolState:
    """Of one Deployment."""
    status = deployment.get("status") or {}
    return PoolState(
        name=pool_of(deployment),
        num_wanted=deployment["spec"].get("replicas", 1),
        num_present=status.get("replicas", 0),
        num_ready=status.get("readyReplicas", 0),
        generation=deployment["metadata"].get("generation", 0),
        problem=problem_of(deployment),
    )


def is_seen(deployment: Object) -> bool:
    """False while its status is of what was wanted before."""
    seen = (deployment.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= deployment["metadata"].get("generation", 0))


def problem_of(deployment: Object) -> str:
    """Why pods are not made, or do not get ready, of what is wanted now; empty: neither is said."""
    if not is_seen(deployment):
        return ""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        failed = _FAILURES.get(condition["type"]) == condition["status"]
        if failed and condition.get("reason") != "DeploymentPaused":
            return str(condition.get("message") or condition.get("reason"))
    return ""


def gpus_of_a_pod(deployment: Object) -> int:
    """That its containers ask for."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    limits = (container.get("resources", {}).get("limits") or {} for container in containers)
    return sum(
        int(amount)
        for each in limits
        for resource, amount in each.items()
        if resource.endswith(GPU_SUFFIX)
    )
