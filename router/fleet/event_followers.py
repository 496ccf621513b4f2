"""Everybody's KV events into the index, and out of it again: one context of sockets, one share of
the loop for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import zmq
import zmq.asyncio

from cluster.cache_change import CacheChange
from cluster.identity import WorkerKey
from cluster.kv_events.keys import ReaderKeys
from cluster.kv_events.subscriber import EventAddresses, KvEventSubscriber
from cluster.logs import get_logger
from cluster.membership.member import Member
from cluster.membership.memory import MAX_MEMBERS
from cluster.process.background import Background, Work, cancel
from cluster.process.loop_share import LoopShare
from router.engine_events.follower import EngineEventFollower
from router.engine_events.source import EngineEventSource
from router.fleet.guessed_cache import GuessedCache
from router.fleet.member import FleetMember
from router.index.prefix_index import PrefixIndex
from router.telemetry.metrics import RouterMetrics

SOCKETS_PER_WORKER = 3
"""Live events, their monitor, and a question about the past."""
_log = get_logger("fleet")


@dataclass(frozen=True, slots=True)
class _Listener:
    """An EngineEventListener: one worker's events into the index."""

    worker: WorkerKey
    index: PrefixIndex
    metrics: RouterMetrics
    on_cleared: Callable[[], None]
    on_known: Callable[[], None]

    def apply(self, change: CacheChange) -> None:
        self.metrics.event_orphans.inc(self.index.apply(self.worker, change))
        if change.cleared:
            self.on_cleared()

    def note_gap(self) -> None:
        self.metrics.event_gaps.inc()

    def note_resync(self) -> None:
        self.metrics.event_resyncs.inc()
        self.on_known()

    def note_left_out(self, why: str, num_blocks: int) -> None:
        self.metrics.events_left_out.labels(why).inc(num_blocks)


class EventFollowers:
    """All calls from the event loop; `close` at the end."""

    def __init__(
        self,
        index: PrefixIndex,
        metrics: RouterMetrics,
        background: Background,
        share: LoopShare,
    ) -> None:
        self._index = index
        self._metrics = metrics
        self._background = background
        self._share = share
        self._context: zmq.asyncio.Context | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._engines: dict[WorkerKey, EngineEventSource] = {}
        """Of members that are engines of another kind."""
        self._sweeper: asyncio.Task[None] | None = None
        self._has_departed = asyncio.Event()
        self._subscribers: dict[WorkerKey, KvEventSubscriber] = {}
        self._known: set[WorkerKey] = set()

    def position_of(self, worker: WorkerKey) -> int | None:
        """Number of the last of its events that the index has; None while it does not know all
        that the worker has cached."""
        subscriber = self._subscribers.get(worker)
        return None if subscriber is None else subscriber.position

    def knows(self, worker: WorkerKey) -> bool:
        """True once the worker has told all that it has cached."""
        return worker in self._known

    def follow(self, member: Member) -> asyncio.Task[None]:
        """From now on the index knows what this worker has cached. Cancel the task to stop it; a
        follower that fails starts again, and learns everything anew."""
        self._index.add_worker(member.key, member.pairing.block_size_tokens)
        return self._start(member)

    def follow_engine(self, member: Member, source: EngineEventSource) -> asyncio.Task[None]:
        """As `follow`, where the member stands for an engine of another kind."""
        self._engines[member.key] = source
        return self.follow(member)

    def guess(self, member: Member) -> GuessedCache:
        """A worker that has a cache and no events: what it serves is all that the index learns."""
        self._index.add_worker(member.key, member.pairing.block_size_tokens)
        return GuessedCache(lambda: self._give_up(member.key))

    def learn_anew(self, item: FleetMember) -> None:
        """What is believed of a worker's cache has not come true: all of it is forgotten, and asked
        for again where the worker has events."""
        _log.warning(
            "prompts find another prefix cache than was expected; it is learned anew",
            worker_id=item.key.worker_id,
        )
        self._metrics.doubts.inc()
        if item.follower is None:
            self._give_up(item.key)
            return
        item.follower.cancel()
        item.follower = self._start(item.member)

    def forget(self, worker: WorkerKey) -> None:
        """The index knows nothing more of a worker; the room of its blocks comes in slices."""
        self._engines.pop(worker, None)
        self._known.discard(worker)
        self._index.remove_worker(worker)
        self._start_sweep()

    async def close(self) -> None:
        """Stops whoever still follows and closes all sockets; idempotent."""
        await cancel(self._tasks)
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    def _start(self, member: Member) -> asyncio.Task[None]:
        context = self._open_context()
        return self._keep(f"kv-events-{member.worker_id}", lambda: self._follow(member, context))

    def _give_up(self, worker: WorkerKey) -> None:
        self._index.apply(worker, CacheChange(cleared=True))
        self._start_sweep()

    def _start_sweep(self) -> None:
        """One task for all, however many depart; where it fails it begins again."""
        if not self._index.needs_sweep:
            return
        self._has_departed.set()
        if self._sweeper is None:
            self._sweeper = self._keep("index-sweep", self._sweep)

    async def _sweep(self) -> None:
        """Never returns."""
        while True:
            with closing(self._index.sweep()) as slices:
                for _ in slices:
                    await self._share.breathe()
            self._has_departed.clear()
            await self._has_departed.wait()

    def _keep(self, name: str, make: Callable[[], Work]) -> asyncio.Task[None]:
        task = self._background.keep(name, make)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _follow(self, member: Member, context: zmq.asyncio.Context) -> None:
        self._known.discard(member.key)
        know = partial(self._known.add, member.key)
        listener = _Listener(member.key, self._index, self._metrics, self._start_sweep, know)
        listener.apply(CacheChange(cleared=True))  # whatever one before this one had believed
        source = self._engines.get(member.key)
        if source is not None:
            await EngineEventFollower(source, listener, share=self._share).run(context)
            return
        subscriber = KvEventSubscriber(_addresses_of(member), listener, share=self._share)
        self._subscribers[member.key] = subscriber
        try:
            await subscriber.run(context)
        finally:
            if self._subscribers.get(member.key) is subscriber:
                del self._subscribers[member.key]

    def _open_context(self) -> zmq.asyncio.Context:
        if self._context is None:
            self._context = zmq.asyncio.Context()
            self._context.set(zmq.MAX_SOCKETS, SOCKETS_PER_WORKER * MAX_MEMBERS)
        return self._context


def _addresses_of(member: Member) -> EventAddresses:
    keys = None
    if member.kv_events_key and member.kv_reader_secret:
        keys = ReaderKeys(member.kv_events_key, member.kv_reader_secret)
    return EventAddresses(member.kv_events_address, member.kv_replay_address, keys=keys)
