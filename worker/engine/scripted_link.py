"""An engine that says what a test tells it to, and remembers what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from cluster.errors import SplitserveError, WorkerLost
from cluster.kv_peer import KvPeer, KvRank
from engine.contract.commands import Command
from engine.contract.messages import Frame, Loaded, LoadProgress, Ready
from engine.contract.weight_format import WeightFormat
from worker.engine.link import LifeListener, LifeSign

C = TypeVar("C", bound=Command)
PATIENCE_S = 5.0


def scripted_peer(transport: str = "loopback") -> KvPeer:
    """A pool that nobody reads."""
    rank = KvRank(
        rank=0,
        first_head=0,
        num_heads=1,
        agent_name="scripted",
        agent_metadata=b"",
        pool_address=0,
        block_bytes=64,
        memory="DRAM",
        device_id=0,
    )
    return KvPeer(
        transport=transport,
        shares_blocks=False,
        blocks_each=8,
        block_size_tokens=4,
        generations_address=0,
        host="",
        ranks=(rank,),
    )


def scripted_ready(peer: KvPeer | None = None) -> Ready:
    """An engine with a small pool."""
    return Ready(
        pid=1,
        loaded=Loaded(weights=WeightFormat.FULL),
        total_blocks=8,
        max_context_tokens=128,
        vocab_size=64,
        peer=peer,
        kv_transport="scripted",
    )


class ScriptedLink:
    """An EngineLink; see there. `say` sends a frame, `die` ends the engine."""

    def __init__(
        self, ready: Ready | None = None, *, start_error: SplitserveError | None = None
    ) -> None:
        self.commands: list[Command] = []
        self.pid: int | None = None
        self.is_stopped = False
        self.last_word: SplitserveError | None = None
        self._ready = ready or scripted_ready(scripted_peer())
        self._start_error = start_error
        self._life_listeners: list[LifeListener] = []
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._arrived = asyncio.Condition()
        self._died: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_life(self, listener: LifeListener) -> None:
        """Called by `say` and by `live`."""
        self._life_listeners.append(listener)

    @property
    def died(self) -> asyncio.Future[str]:
        """Done after `die`."""
        return self._died

    async def start(self, on_progress: Callable[[LoadProgress], None] | None = None) -> Ready:
        """Ready at once, or the error that the test chose."""
        if self._start_error is not None:
            raise self._start_error
        if on_progress is not None:
            on_progress(LoadProgress("script", 1.0))
        self.pid = self._ready.pid
        return self._ready

    async def send(self, command: Command) -> None:
        """Remembered in `commands`."""
        if self._died.done():
            raise WorkerLost(self._died.result())
        async with self._arrived:
            self.commands.append(command)
            self._arrived.notify_all()

    async def frames(self) -> AsyncIterator[Frame]:
        """What the test says."""
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def stop(self) -> None:
        """Ends the frames."""
        self.is_stopped = True
        self._frames.put_nowait(None)

    def say(self, frame: Frame) -> None:
        """The engine has made a step."""
        self._frames.put_nowait(frame)
        self.live()

    def live(self, sign: LifeSign = LifeSign.WORD) -> None:
        """The engine has said something, or is in a long step."""
        for listener in self._life_listeners:
            listener(sign)

    def die(self, how: str) -> None:
        """The engine's process has ended by itself."""
        self._died.set_result(how)
        self._frames.put_nowait(None)

    def told(self, kind: type[C]) -> list[C]:
        """The commands of one kind so far."""
        return [command for command in self.commands if isinstance(command, kind)]

    async def wait_for(self, kind: type[C], count: int = 1) -> C:
        """The `count`-th command of a kind; raises TimeoutError after five seconds without it."""
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.told(kind)) >= count)
        return self.told(kind)[count - 1]
