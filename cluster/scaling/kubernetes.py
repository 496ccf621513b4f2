"""The Scaler of a fleet that the chart has installed: its pools are Deployments, or
LeaderWorkerSets where the ranks of a worker span hosts.

A pool that gets smaller loses the pods that were named (named_pod.py), and else those that
Kubernetes chooses; each drains before it ends.
What limit ranges, quotas, free GPUs and disruption budgets do not allow is refused before the patch
(room_check.py); what they forbid all the same is known when a pod is to be made, and the pool says
it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cluster.deadline import Sleep
from cluster.scaling.groups import Object
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.scaling.named_pod import NamedPod
from cluster.scaling.pool_kind import kind_of
from cluster.scaling.room_check import room_for
from cluster.scaling.scaler import (
    PoolState,
    RefusalReason,
    ScaleOrder,
    ScalePlan,
    ScaleRefused,
    check_order,
)

POOL_LABEL = "splitserve/pool"
COMPONENT_LABEL = "app.kubernetes.io/component"
START_LIMIT = "splitserve/start-limit"
"""Seconds, as the chart annotates pools of both kinds; of an older one only Deployments say it, as
their progress deadline."""
GPU_SUFFIX = "/gpu"
"""Of the resource by which nodes count GPUs: nvidia.com/gpu, amd.com/gpu."""


class KubernetesScaler:
    """See Scaler."""

    def __init__(self, api: DeploymentsApi, release: str, sleep: Sleep = asyncio.sleep) -> None:
        """`release`: of helm, or what `nameOverride` says."""
        self._api = api
        self._sleep = sleep
        self._selector = selector_of(release)

    async def pools(self) -> Sequence[PoolState]:
        """See Scaler."""
        return [pool_state(found) for found in await self._api.pools(self._selector)]

    async def scale(self, order: ScaleOrder) -> ScalePlan:
        """See Scaler. Raises NotSettled where a pod that was named does not go."""
        found = {pool_of(item): item for item in await self._api.pools(self._selector)}
        check_listed(self._api, order.pool, list(found))
        check_order(order, list(found))
        pool = found[order.pool]
        before = pool["spec"].get("replicas", 1)
        leaving = [NamedPod(self._api, pod, order.pool) for pod in order.leaving]
        if leaving:
            _check_can_be_named(pool)
        unjudged = await room_for(self._api.room, found, order, pool_state(pool))
        await self._change(pool, order, leaving)
        return ScalePlan(
            pool=order.pool,
            size_before=before,
            size=order.size,
            leaving=order.leaving,
            num_gpus=max(0, order.size - before) * gpus_of_a_worker(pool),
            unjudged=unjudged,
        )

    async def _change(self, pool: Object, order: ScaleOrder, leaving: Sequence[NamedPod]) -> None:
        try:
            for pod in leaving:
                await pod.price(label=POOL_LABEL, is_dry_run=order.is_dry_run)
            await self._api.patch_scale(pool, order.size, is_dry_run=order.is_dry_run)
        except BaseException:  # an operator's Ctrl-C as well
            for pod in leaving:
                await pod.take_back()
            raise
        if order.is_dry_run:
            return

        def is_smaller(now: Object) -> bool:
            return (
                pool_of(now) == order.pool
                and kind_of(now).is_seen(now)
                and pool_state(now).num_present <= order.size
            )

        for pod in leaving:
            await pod.see_it_go(self._selector, is_smaller, self._sleep)

    async def close(self) -> None:
        """See Scaler."""
        await self._api.close()


def _check_can_be_named(pool: Object) -> None:
    """Raises ScaleRefused where the pod that is named would not be the one that goes."""
    state, status, kind = pool_state(pool), pool.get("status") or {}, kind_of(pool)
    if kind.why_unnamed:
        raise ScaleRefused(RefusalReason.OPTIONS, f"{state.name} is {kind.why_unnamed}")
    is_of_one_template = status.get("updatedReplicas", 0) == state.num_present
    if not (kind.is_seen(pool) and state.is_settled and is_of_one_template):
        raise ScaleRefused(
            RefusalReason.CHANGING,
            f"{state.name} has {state.num_ready} of {state.num_wanted} pods ready"
            f"{'' if is_of_one_template else ', of two templates'}: Kubernetes would end one that "
            f"is not ready, whichever is named; see `splitserve rollout status {state.name}`, and "
            "try again when all are ready",
        )


def selector_of(release: str) -> str:
    """The labels of a release's pools."""
    return f"app.kubernetes.io/name=splitserve,app.kubernetes.io/instance={release},{POOL_LABEL}"


def check_listed(api: DeploymentsApi, pool: str, found: Sequence[str]) -> None:
    """Raises ScaleRefused for a pool that may be among what the server has not shown."""
    if api.hidden and pool not in found:
        raise ScaleRefused(
            RefusalReason.FORBIDDEN, f"no Deployment is the pool {pool}, and {api.hidden}"
        )


def pool_of(deployment: Object) -> str:
    """As values.yaml names it."""
    return str(deployment["metadata"]["labels"][POOL_LABEL])


def pool_state(deployment: Object) -> PoolState:
    """Of one Deployment, or set of groups: a replica of it is a group."""
    status, metadata = deployment.get("status") or {}, deployment["metadata"]
    said = (metadata.get("annotations") or {}).get(START_LIMIT, "")
    return PoolState(
        name=pool_of(deployment),
        num_wanted=deployment["spec"].get("replicas", 1),
        num_present=status.get("replicas", 0),
        num_ready=status.get("readyReplicas", 0),
        generation=metadata.get("generation", 0),
        problem=kind_of(deployment).problem(deployment),
        role=_role_of(deployment),
        workers_begin=f"{metadata['name']}-",
        start_limit_s=(
            float(said) if said.isdecimal() else deployment["spec"].get("progressDeadlineSeconds")
        ),
    )


def _role_of(deployment: Object) -> str:
    """As the chart labels it: decode-worker."""
    component = deployment["metadata"]["labels"].get(COMPONENT_LABEL, "")
    return str(component).removesuffix("-worker")


def gpus_of_a_worker(pool: Object) -> int:
    """That the containers of its pods ask for."""
    pods = kind_of(pool).pods_of_a_worker(pool)
    containers = (each for pod in pods for each in pod["containers"])
    limits = (container.get("resources", {}).get("limits") or {} for container in containers)
    return sum(
        int(amount)
        for each in limits
        for resource, amount in each.items()
        if resource.endswith(GPU_SUFFIX)
    )
