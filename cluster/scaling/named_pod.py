"""One pod of a Deployment that goes first when its pool gets smaller.

priced     the least deletion cost, which a ReplicaSet looks at among pods that are all ready:
           it takes pending and unready ones before it, so that the pool must be settled
scaled     by whoever called; refused: `take_back`
going      seen, or another one went in its place, which is said
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.deadline import Sleep
from cluster.errors import SplitserveError, WorkerLost
from cluster.scaling.groups import Object
from cluster.scaling.kubernetes_api import DELETION_COST, LOST_FIRST, DeploymentsApi
from cluster.scaling.scaler import POLL_INTERVAL_S, NotSettled, RefusalReason, ScaleRefused

_LOOKS = 30
"""At a pod that should go: the controllers of a busy cluster take seconds."""
IsSmaller = Callable[[Object], bool]


class NamedPod:
    """Of one order."""

    def __init__(self, api: DeploymentsApi, name: str, pool: str) -> None:
        """`pool`: as values.yaml names it."""
        self._api = api
        self._name = name
        self._pool = pool
        self._cost_before: str | None = None
        self._is_priced = False

    async def price(self, *, label: str, is_dry_run: bool) -> None:
        """Raises ScaleRefused for what is no pod of the pool, by this label of it."""
        pod = await self._api.pod(self._name)
        if pod is None or (pod["metadata"].get("labels") or {}).get(label) != self._pool:
            raise ScaleRefused(
                RefusalReason.NO_SUCH_WORKER,
                f"{self._name} is no pod of {self._pool}; `kubectl get pods -l "
                f"{label}={self._pool}` lists them",
            )
        if _is_going(pod):
            raise ScaleRefused(RefusalReason.CHANGING, f"{self._name} is ending already")
        self._cost_before = (pod["metadata"].get("annotations") or {}).get(DELETION_COST)
        self._is_priced = not is_dry_run  # also where the server's answer does not come
        await self._api.set_deletion_cost(self._name, LOST_FIRST, is_dry_run=is_dry_run)

    async def take_back(self) -> None:
        """What was not done is not left to be done later. Never raises: another failure is told."""
        if not self._is_priced:
            return
        try:
            await self._api.set_deletion_cost(self._name, self._cost_before, is_dry_run=False)
        except (ScaleRefused, SplitserveError):
            return  # the pod has gone, or nobody answers

    async def see_it_go(self, selector: str, is_smaller: IsSmaller, sleep: Sleep) -> None:
        """`is_smaller`: of its pool, as listed. Raises NotSettled where another one went, and
        WorkerLost where nobody answers whether it goes."""
        for _ in range(_LOOKS):
            try:
                has_lost = any(map(is_smaller, await self._api.pools(selector)))
                pod = await self._api.pod(self._name)
            except WorkerLost as failure:
                raise type(failure)(
                    f"{self._pool} was scaled, and whether {self._name} goes was not seen: "
                    f"{failure.message}"
                ) from failure
            if pod is None or _is_going(pod):
                return
            if has_lost:
                await self.take_back()
                raise NotSettled(
                    f"{self._pool} has its new size, but {self._name} stays: another pod of it, "
                    "which was not ready then, went in its place"
                )
            await sleep(POLL_INTERVAL_S)
        raise NotSettled(
            f"{self._pool} was scaled, but {self._name} has not begun to end: the cluster's "
            "controllers have not answered yet"
        )


def _is_going(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
