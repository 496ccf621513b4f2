"""Whether a cluster has room for an order, asked before anything is changed.

    larger    limit ranges and quotas of the namespace, then what is free on the nodes that the pods
              may be on
    smaller   disruption budgets of the pool's pods

What may not be looked at is passed over and said: many who may scale a pool may not list nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from cluster.scaling.budgets import PoolShrinking, budget_refusals
from cluster.scaling.groups import Object
from cluster.scaling.limit_ranges import filled_in, limit_refusals
from cluster.scaling.node_room import device_refusals, wants_devices
from cluster.scaling.pool_growth import PoolGrowth, growth_of
from cluster.scaling.pool_kind import kind_of
from cluster.scaling.quotas import quota_refusals
from cluster.scaling.room_api import RoomApi
from cluster.scaling.scaler import PoolState, RefusalReason, ScaleOrder, ScaleRefused

Listing = Callable[[], Awaitable[Sequence[Object]]]
_LIMITS = "limit ranges"
_GPUS = "GPUs of nodes"
_BUDGETS = "disruption budgets"
_MAX_TEXTS = 8
"""Of one refusal: a quota has as many resources as somebody wrote."""


class RoomCheck:
    """Of one order."""

    def __init__(self, room: RoomApi) -> None:
        self._room = room
        self._unjudged: list[str] = []
        self._refusals: list[tuple[RefusalReason, str]] = []

    async def grow(self, growths: Sequence[PoolGrowth], *, may_wait: bool) -> tuple[str, ...]:
        """`growths`: of the order, and of those that are given with it. `may_wait`: for nodes that
        are not there yet. What was not looked at, in words. Raises ScaleRefused, WorkerLost."""
        ranges = await self._seen(_LIMITS, self._room.limit_ranges)
        if ranges:
            growths = filled_in(ranges, growths)
            self._judge(RefusalReason.LIMITS, _LIMITS, lambda: limit_refusals(ranges, growths))
        quotas = await self._seen("quotas", self._room.quotas)
        if quotas is not None:
            self._judge(RefusalReason.QUOTA, "quotas", lambda: quota_refusals(quotas, growths))
        if not may_wait and self._asks_for_devices(growths):
            await self._judge_devices(growths)
        return self._outcome()

    async def shrink(self, shrinking: PoolShrinking) -> tuple[str, ...]:
        """The same of a pool that gets smaller."""
        budgets = await self._seen(_BUDGETS, self._room.budgets)
        if budgets is not None:
            reason = RefusalReason.DISRUPTION
            self._judge(reason, _BUDGETS, lambda: budget_refusals(budgets, shrinking))
        return self._outcome()

    def _asks_for_devices(self, growths: Sequence[PoolGrowth]) -> bool:
        try:
            return wants_devices(growths)
        except ValueError as cause:
            self._unjudged.append(f"{_GPUS}: {cause}")
            return False

    async def _judge_devices(self, growths: Sequence[PoolGrowth]) -> None:
        nodes = await self._seen(_GPUS, self._room.nodes)
        pods = None if nodes is None else await self._seen(_GPUS, self._room.pods_on_nodes)
        if nodes is None or pods is None:
            return
        namespace = self._room.namespace
        self._judge(
            RefusalReason.GPUS, _GPUS, lambda: device_refusals(nodes, pods, growths, namespace)
        )

    async def _seen(self, what: str, listing: Listing) -> Sequence[Object] | None:
        """None where it may not be listed, which is noted."""
        try:
            return await listing()
        except ScaleRefused as refusal:
            self._unjudged.append(f"{what}: {refusal.message}")
            return None

    def _judge(self, reason: RefusalReason, what: str, judge: Callable[[], list[str]]) -> None:
        try:
            self._refusals += [(reason, text) for text in judge()]
        except ValueError as cause:
            self._unjudged.append(f"{what}: {cause}")

    def _outcome(self) -> tuple[str, ...]:
        if not self._refusals:
            return tuple(self._unjudged)
        texts = [text for _, text in self._refusals]
        left = len(texts) - _MAX_TEXTS
        more = [f"and {left} more"] if left > 0 else []
        raise ScaleRefused(self._refusals[0][0], "; ".join(texts[:_MAX_TEXTS] + more))


async def room_for(
    room: RoomApi, pools: Mapping[str, Object], order: ScaleOrder, state: PoolState
) -> tuple[str, ...]:
    """What of `order` could not be judged. `pools`: all, by name; `state`: of its own. Raises
    ScaleRefused and WorkerLost."""
    if order.skips_room:
        return ()
    pool = pools[order.pool]
    if order.size < state.num_wanted:
        kind = kind_of(pool)
        shrinking = PoolShrinking(
            state=state,
            size=order.size,
            pods_of_a_worker=len(kind.pods_of_a_worker(pool)),
            labels=kind.labels_of_its_pods(pool),
        )
        return await RoomCheck(room).shrink(shrinking)
    if order.size == state.num_wanted:
        return ()
    beside = [(name, size) for name, size in order.beside if name in pools and name != order.pool]
    sizes = (*beside, (order.pool, order.size))
    growths = [growth_of(pools[name], name, size) for name, size in sizes]
    return await RoomCheck(room).grow(growths, may_wait=order.may_wait)
