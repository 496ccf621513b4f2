"""One engine process as its server sees it: submit and send, and events come to the listeners.

    link.frames -> listeners, by request -> frame observers
    server      -> outbox        -> link.send

`send` only queues, so that it can be called from a listener and from a `finally`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from functools import partial

import msgspec

from cluster.cache_change import CachedBlock
from cluster.errors import DeadlineExceeded, SplitserveError, WorkerLost
from cluster.generation import EngineLoad
from cluster.logs import get_logger
from cluster.process.background import Background, Loss
from cluster.rank_pace import PaceMeter, RankPace
from engine.contract.commands import (
    WARM_PART_BLOCKS,
    Cancel,
    Command,
    GenerateRequest,
    Inspect,
    Submit,
)
from engine.contract.messages import Frame, Inspection, LoadProgress, Ready
from engine.contract.warm_blocks import WarmBlock, WarmBlocks
from worker.engine.link import EngineLink, LifeListener
from worker.engine.listeners import Listeners, RequestListener

INSPECT_TIMEOUT_S = 10.0
"""An engine answers within a step; ten seconds without one means that it hangs."""

FrameObserver = Callable[[Frame], None]
_log = get_logger("worker.engine")


class EngineHost:
    """Owns the link. All calls from the event loop that `start` ran in."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._listeners = Listeners()
        self._outbox: asyncio.Queue[Command] = asyncio.Queue()
        self._observers: list[FrameObserver] = []
        self._inspections: dict[int, asyncio.Future[Inspection]] = {}
        self._tokens = itertools.count(1)
        self._background = Background(self._on_loss)
        self._load = EngineLoad()
        self._pace = PaceMeter()
        self._kv_transport = ""
        self._lost: asyncio.Future[SplitserveError] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """Of the engine process; 0 before the start."""
        return self._link.pid or 0

    @property
    def load(self) -> EngineLoad:
        """The latest that the engine told."""
        return self._load

    @property
    def rank_paces(self) -> list[RankPace]:
        """See EngineView."""
        return self._pace.latest

    @property
    def kv_transport(self) -> str:
        """The transport in use, in words; empty when not known."""
        return self._kv_transport

    @property
    def lost(self) -> asyncio.Future[SplitserveError]:
        """Done, with the cause, once the engine has died by itself."""
        return self._lost

    @property
    def num_requests(self) -> int:
        """Requests that the engine has not ended."""
        return len(self._listeners)

    def observe(self, observer: FrameObserver) -> None:
        """`observer` is called with every frame, after its events were handed out."""
        self._observers.append(observer)

    def on_life(self, listener: LifeListener) -> None:
        """`listener` is called with every sign of life of the engine; see EngineLink."""
        self._link.on_life(listener)

    async def start(self, on_progress: Callable[[LoadProgress], None] | None = None) -> Ready:
        """Starts the engine; returns when its model is loaded. Raises what the engine reports."""
        ready = await self._link.start(on_progress)
        self._kv_transport = ready.kv_transport
        self._load = EngineLoad(total_blocks=ready.total_blocks, free_blocks=ready.total_blocks)
        self._background.need("commands to the engine", self._send_commands())
        self._background.need("frames of the engine", self._read_frames())
        return ready

    def name_for(self, request_id: str) -> str:
        """An engine-wide unique id for one submission of `request_id`."""
        return self._listeners.name_for(request_id)

    def submit(self, request: GenerateRequest, listener: RequestListener) -> None:
        """The request's id comes from `name_for`. The listener gets exactly one RequestEnded."""
        self._listeners.add(request.request_id, listener)
        if self._lost.done():
            self._listeners.end_one(request.request_id, self._lost.result())
            self._tell_observers(Frame())
            return
        try:
            self.send(Submit(request))
        except BaseException:
            self._listeners.drop(request.request_id)
            raise

    def send(self, command: Command) -> None:
        """Queues a command, in order; dropped when the engine is gone."""
        self._outbox.put_nowait(command)

    async def violations(self) -> list[str]:
        """Runs the engine's own checks; empty is good."""
        return (await self._inspect(partial(Inspect, check_invariants=True))).violations

    async def snapshot(self) -> list[CachedBlock]:
        """Every cached block, parents first."""
        return (await self._inspect(partial(Inspect, snapshot_cache=True))).snapshot

    async def warm(self) -> WarmBlocks:
        """The cached blocks that were used last, asked for in parts: neither a step of the engine
        nor the event loop has all at once. Raises WorkerLost or DeadlineExceeded."""
        blocks: list[WarmBlock] = []
        first = 0
        while True:
            part = (await self._inspect(partial(Inspect, warm_from=first))).warm
            blocks += part.blocks
            first += WARM_PART_BLOCKS
            if first >= part.num_listed:
                return msgspec.structs.replace(part, blocks=blocks)

    async def stop(self) -> None:
        """Ends the engine's process; requests that still run end with WorkerLost. Idempotent."""
        await self._link.stop()
        await self._background.close()
        self._abandon(WorkerLost("the worker has stopped; send the request to another one"))

    async def _inspect(self, ask: Callable[[int], Inspect]) -> Inspection:
        """`ask`: makes the command, of its token."""
        if self._lost.done():
            raise WorkerLost(self._lost.result().message)
        token = next(self._tokens)
        answer: asyncio.Future[Inspection] = asyncio.get_running_loop().create_future()
        self._inspections[token] = answer
        self.send(ask(token))
        try:
            async with asyncio.timeout(INSPECT_TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise DeadlineExceeded(
                f"the engine did not answer within {INSPECT_TIMEOUT_S} s; it may hang"
            ) from None
        finally:
            self._inspections.pop(token, None)

    async def _send_commands(self) -> None:
        while True:
            command = await self._outbox.get()
            with contextlib.suppress(WorkerLost):  # the reader of frames reports it
                await self._link.send(command)

    async def _read_frames(self) -> None:
        """Ends with the engine; a frame that cannot be handled is the engine's end, too."""
        async for frame in self._link.frames():
            self._take(frame)
        how = await self._link.died
        raise WorkerLost(f"the engine died: {how}") from self._link.last_word

    def _on_loss(self, loss: Loss) -> None:
        if self._lost.done():
            return
        cause = loss.cause
        lost = cause if isinstance(cause, WorkerLost) else WorkerLost(f"the engine is lost: {loss}")
        _log.error(
            "the engine is lost; its requests fail and the worker ends",
            cause=lost.message,
            num_requests=len(self._listeners),
        )
        self._lost.set_result(lost)
        self._abandon(lost)

    def _take(self, frame: Frame) -> None:
        if frame.load is not None:
            self._load = frame.load
        if frame.rank_waits:
            self._pace.take(frame.rank_waits)
        self._kv_transport = frame.kv_transport or self._kv_transport
        for engine_id in self._listeners.route(frame):
            self.send(Cancel(engine_id))
        for inspection in frame.inspections:
            answer = self._inspections.get(inspection.token)
            if answer is not None and not answer.done():
                answer.set_result(inspection)
        self._tell_observers(frame)

    def _abandon(self, error: SplitserveError) -> None:
        self._listeners.end_all(error)
        for answer in self._inspections.values():
            if not answer.done():
                answer.set_exception(error)
        self._tell_observers(Frame())

    def _tell_observers(self, frame: Frame) -> None:
        """One that fails must not take the requests with it."""
        for observer in self._observers:
            try:
                observer(frame)
            except Exception:
                _log.exception("a part of the worker failed on the engine's news; the others go on")
