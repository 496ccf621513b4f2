"""Spare workers: loaded, unknown to the router, and promoted when one that serves is lost.

    every worker of a pool with spares starts as one; as many as the pool has places are promoted
    a worker ends, or says that it will  -> a spare is promoted at once
    the lost one starts again            -> it is the new spare, or gets the place if it is free yet
    a spare that cannot be promoted      -> it is ended, and started again; the next one is asked

A pool without spares is none of its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from cluster.dial.dialer import Dialer
from cluster.errors import SplitserveError
from cluster.logs import get_logger
from cluster.process.background import Background, nothing_needed
from cluster.supervisor.news import News, Promoted, Restarting, Retiring, Serving, Watcher
from cluster.supervisor.places import Places, WarmWorker
from cluster.supervisor.pool import PoolSize

PROMOTE_TIMEOUT_S = 5.0
"""A worker answers at once; one that does not in this time is no use as a spare."""
MakeDialer = Callable[[], Dialer]
"""Called when somebody is to be spoken to, and not before."""
EndWorker = Callable[[str, str], None]
"""Called with a worker's name and why its process is to be ended; it is then started again."""
_log = get_logger("supervisor")


class Reserve:
    """A Watcher of the supervisor's news. All calls from one event loop."""

    def __init__(
        self, pools: Sequence[PoolSize], dialer: MakeDialer, end: EndWorker, told: Watcher
    ) -> None:
        """`told` hears who was promoted."""
        self._pools = {name: pool.name for pool in pools if pool.num_spares for name in pool.names}
        self._places = {pool.name: Places(pool.num_places) for pool in pools if pool.num_spares}
        self._dialer = dialer
        self._end = end
        self._told = told
        self._are_filled = asyncio.Event()
        self._is_closed = False
        self._background = Background(nothing_needed)
        self._note_filled()

    @property
    def spares(self) -> tuple[WarmWorker, ...]:
        """Of all pools, now."""
        return tuple(spare for places in self._places.values() for spare in places.spares)

    async def filled(self) -> None:
        """Returns once every place has been taken, after the first start."""
        await self._are_filled.wait()

    def resize(self, pool: PoolSize, new_names: Sequence[str]) -> None:
        """So many places, and workers that are yet to come."""
        if pool.name in self._places:
            self._pools |= dict.fromkeys(new_names, pool.name)
            self._places[pool.name].resize(pool.num_places)
            self._fill(pool.name)

    def __call__(self, piece: News) -> None:
        """See the head of the file."""
        match piece:
            case Serving(name=name, pid=pid, address=address) if name in self._pools:
                pool = self._pools[name]
                self._places[pool].come(WarmWorker(name, pool, pid, address))
                self._fill(pool)
            case Retiring(name) if name in self._pools:
                self._lose(name)
            case Restarting(failure) if failure.name in self._pools:
                self._lose(failure.name)

    async def close(self) -> None:
        """Promotes nobody any more: the fleet is to end."""
        self._is_closed = True
        await self._background.close()

    def _lose(self, name: str) -> None:
        pool = self._pools[name]
        self._places[pool].gone(name)
        self._fill(pool)

    def _fill(self, pool: str) -> None:
        if self._is_closed:
            return
        for worker in self._places[pool].fill():
            self._background.once(f"promotion of {worker.name}", self._promote(worker))

    async def _promote(self, worker: WarmWorker) -> None:
        try:
            await self._ask(worker)
        except SplitserveError as refusal:
            self._dismiss(worker, refusal)
        else:
            self._places[worker.pool].serves(worker)
            self._note_filled()
            self._told(Promoted(worker.name))

    async def _ask(self, worker: WarmWorker) -> None:
        link = self._dialer().worker_admin(worker.address)
        try:
            await link.promote(timeout_s=PROMOTE_TIMEOUT_S)
        finally:
            await link.close()

    def _dismiss(self, worker: WarmWorker, refusal: SplitserveError) -> None:
        """Whether it has a place is not known after a call without an answer: it must not go on."""
        if not self._places[worker.pool].has_placed(worker):
            return  # its end was noticed meanwhile
        _log.error("a spare worker cannot be promoted", worker=worker.name, why=refusal.message)
        self._end(worker.name, f"it was a spare that could not be promoted: {refusal.message}")
        self._lose(worker.name)

    def _note_filled(self) -> None:
        if all(places.all_serve for places in self._places.values()):
            self._are_filled.set()
