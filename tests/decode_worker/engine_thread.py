"""A real engine with a model-free runner, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import msgspec

from cluster.engine_options import EngineOptions
from engine.contract.commands import Command, Stop
from engine.contract.messages import EngineMessage, Frame, Loaded, LoadProgress, Ready, Stepped
from engine.contract.weight_format import WeightFormat
from engine.process.extension import EngineParts, ExtensionFactory
from engine.process.fake_runner import fake_replica
from engine.process.loop import EngineLoop
from engine.step.engine import Engine
from worker.engine.link import LifeListener, LifeSign

BLOCK_SIZE = 4
NUM_BLOCKS = 48
OPTIONS = EngineOptions(block_size_tokens=BLOCK_SIZE, max_batch_tokens=16, max_num_seqs=8)


def fake_engine(*, block_size: int = BLOCK_SIZE) -> tuple[Engine, EngineParts]:
    replica = fake_replica(num_blocks=NUM_BLOCKS, block_size=block_size)
    options = replace(OPTIONS, block_size_tokens=block_size)
    engine = Engine(replica, options)
    parts = EngineParts(
        spec=None,
        kv=replica.kv,
        generations=engine.placement.pool.generations,
        shares=(),
        num_homes=1,
        receiving_blocks=engine.receiving_blocks,
    )
    return engine, parts


class QueueChannel:
    """Commands in by a queue, messages out by a callback; both packed, as between processes."""

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self.commands: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.may_turn = threading.Event()
        self.may_turn.set()
        self._deliver = deliver
        self._decoder = msgspec.msgpack.Decoder(Command)

    def receive(self, timeout_ms: float) -> list[Command]:
        self.may_turn.wait()
        packed: list[bytes] = []
        try:
            if timeout_ms > 0:
                packed.append(self.commands.get(timeout=timeout_ms / 1e3))
            while True:
                packed.append(self.commands.get_nowait())
        except queue.Empty:
            return [self._decoder.decode(item) for item in packed]

    def send(self, message: EngineMessage) -> None:
        self._deliver(msgspec.msgpack.encode(message))


class ThreadLink:
    """An EngineLink; see there."""

    def __init__(self, make_extension: ExtensionFactory, block_size: int = BLOCK_SIZE) -> None:
        self._block_size = block_size
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._channel = QueueChannel(self._deliver)
        self._make_extension = make_extension
        self._decoder = msgspec.msgpack.Decoder(EngineMessage)
        self._thread: threading.Thread | None = None
        self.died: asyncio.Future[str] = self._loop.create_future()
        self.pid: int | None = None
        self.last_word = None
        self._life_listeners: list[LifeListener] = []

    def on_life(self, listener: LifeListener) -> None:
        self._life_listeners.append(listener)

    def freeze(self) -> None:
        """The engine stands still after its turn, as if its process had been stopped."""
        self._channel.may_turn.clear()

    def thaw(self) -> None:
        self._channel.may_turn.set()

    async def start(self, on_progress: Callable[[LoadProgress], None] | None = None) -> Ready:
        engine, parts = fake_engine(block_size=self._block_size)
        extension = self._make_extension(parts)
        engine.ask_of_reads(extension.has_reads)
        loop = EngineLoop(engine, extension, self._channel)
        self._thread = threading.Thread(target=lambda: (loop.run(), extension.close()))
        self._thread.start()
        return Ready(
            pid=0,
            loaded=Loaded(weights=WeightFormat.FULL),
            total_blocks=NUM_BLOCKS,
            max_context_tokens=NUM_BLOCKS * self._block_size,
            vocab_size=512,
            peer=extension.peer,
            kv_transport=extension.transport,
        )

    async def send(self, command: Command) -> None:
        self._channel.commands.put(msgspec.msgpack.encode(command))

    async def frames(self) -> AsyncIterator[Frame]:
        while (packed := await self._messages.get()) is not None:
            message = self._decoder.decode(packed)
            for listener in self._life_listeners:
                listener(LifeSign.WORD)
            if isinstance(message, Stepped):
                yield message.frame

    async def stop(self) -> None:
        if self._thread is not None:
            self.thaw()
            await self.send(Stop())
            await asyncio.to_thread(self._thread.join)
            self._thread = None
            self._messages.put_nowait(None)

    def _deliver(self, packed: bytes) -> None:
        self._loop.call_soon_threadsafe(self._messages.put_nowait, packed)
