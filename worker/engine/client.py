"""The server's end of an engine process: start it, talk to it, notice its death. No torch here.

start -> LoadProgress... -> Ready -> frames ... -> stop
              |                        |
              '- EngineFailed: raises  '- `died` resolves, frames end

A process that does not work any more (vitals.py) is ended, and so has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from cluster.errors import InternalError, SplitserveError, WorkerLost, from_code
from cluster.logs import get_logger
from cluster.process.background import Background
from cluster.process.owned_folder import OwnedFolder
from cluster.process.signs_of_life import SignsOfLife
from engine.contract.commands import Command, Stop
from engine.contract.messages import (
    AwaitsRanks,
    EngineFailed,
    EngineMessage,
    Frame,
    LoadProgress,
    Ready,
    Stepped,
)
from engine.contract.spec import EngineLaunch, EngineSpec
from worker.engine.engine_child import EngineChild
from worker.engine.link import LifeListener, LifeSign
from worker.engine.vitals import Vitals

_FOLDER_PREFIX = "splitserve-engine-"
_DRAIN_S = 0.05
_STOP_TIMEOUT_S = 10.0
LAST_WORD_TIMEOUT_S = 5.0
"""For an engine that has said why it ends: to let go of its transport and its device."""
_log = get_logger("worker.engine")


class EngineClient:
    """One engine process, driven from an asyncio event loop (that loop's thread only).

    The thread that starts the child must outlive it: Linux ends the child with that thread.
    """

    def __init__(self, *, entry_module: str, spec: EngineSpec) -> None:
        self._entry_module = entry_module
        self._spec = spec
        self._folder = OwnedFolder.make(_FOLDER_PREFIX, Path(tempfile.gettempdir()))
        self._context = zmq.asyncio.Context()
        self._frames = self._context.socket(zmq.PULL)
        self._commands = zmq.Context(self._context).socket(zmq.PUSH)
        self._decoder: msgspec.msgpack.Decoder[EngineMessage] = msgspec.msgpack.Decoder(
            EngineMessage
        )
        self._inbox: asyncio.Queue[EngineMessage | None] = asyncio.Queue()
        self._child: EngineChild | None = None
        self._life_listeners: list[LifeListener] = []
        self._is_stopping = False
        self._last_word: SplitserveError | None = None
        self._died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._background = Background(lambda loss: self._kill(f"cannot be talked to ({loss})"))

    @property
    def pid(self) -> int | None:
        """Of the engine process, once it was started."""
        return self._child.pid if self._child else None

    @property
    def died(self) -> asyncio.Future[str]:
        """Done when the process has ended without `stop`: how, and the last line of its log."""
        return self._died

    @property
    def last_word(self) -> SplitserveError | None:
        """See EngineLink."""
        return self._last_word

    def on_life(self, listener: LifeListener) -> None:
        """See EngineLink."""
        self._life_listeners.append(listener)

    async def start(self, on_progress: Callable[[LoadProgress], None] | None = None) -> Ready:
        """Spawns the process and waits until its model is loaded.

        Raises the error that the engine reports, or InternalError when it dies without a word or
        makes no progress for `start_timeout_s`; the caller then still calls `stop`.
        """
        child = self._spawn(self._bind())
        while (message := await self._receive()) is not None:
            if isinstance(message, Ready):
                return message
            if isinstance(message, EngineFailed):
                raise from_code(message.code, message.message)
            if isinstance(message, LoadProgress) and on_progress:
                on_progress(message)
        raise InternalError(await child.ended)

    async def send(self, command: Command) -> None:
        """Queues a command; order is kept. Raises WorkerLost when the process has ended."""
        if self._child is not None and self._child.ended.done():
            raise WorkerLost(self._child.ended.result())
        try:
            self._commands.send(msgspec.msgpack.encode(command), zmq.NOBLOCK)
        except zmq.Again:
            raise WorkerLost(
                "the engine process has ended; send the request to another worker"
            ) from None

    async def frames(self) -> AsyncIterator[Frame]:
        """Every frame, once, in order; ends when the process has ended. One reader at a time."""
        while (message := await self._receive()) is not None:
            if isinstance(message, Stepped):
                yield message.frame

    async def stop(self) -> None:
        """Asks the process to end, kills it after ten seconds, leaves no trace. Idempotent."""
        self._is_stopping = True
        if self._child is not None:
            await self._end(self._child)
        await self._background.close()
        self._frames.close(linger=0)
        self._commands.close(linger=0)
        self._context.term()
        self._folder.remove()

    def _bind(self) -> Path:
        """The engine's way back, and the file that tells it."""
        addresses = [f"ipc://{self._folder.path}/{name}" for name in ("commands", "frames")]
        for socket, address in zip((self._commands, self._frames), addresses, strict=True):
            socket.set_hwm(0)
            socket.bind(address)
        spec = msgspec.structs.replace(self._spec, run_folder=str(self._folder.path))
        launch = EngineLaunch(spec=spec, commands_address=addresses[0], frames_address=addresses[1])
        file = self._folder.path / "launch"
        file.write_bytes(launch.pack())
        return file

    def _spawn(self, launch_file: Path) -> EngineChild:
        self._child = child = EngineChild(self._entry_module, launch_file)
        vitals = Vitals(self._spec.options, lambda: SignsOfLife.of(child.pid))
        self._background.need("engine messages", self._pump(vitals))
        self._background.need("engine vitals", self._watch(vitals))
        self._background.once("engine end", self._conclude(child))
        return child

    async def _pump(self, vitals: Vitals) -> None:
        while True:
            message = self._decoder.decode(await self._frames.recv())
            vitals.heard(message)
            if isinstance(message, AwaitsRanks):
                continue
            if isinstance(message, EngineFailed):
                self._take_last_word(message)
            self._inbox.put_nowait(message)
            self._tell_of_life(LifeSign.WORD)

    def _take_last_word(self, message: EngineFailed) -> None:
        self._last_word = from_code(message.code, message.message)
        self._background.once("end of a failed engine", self._end_after_last_word())

    async def _end_after_last_word(self) -> None:
        """What it closes may hang, or spin, which looks like work."""
        await asyncio.sleep(LAST_WORD_TIMEOUT_S)
        self._kill(f"did not end within {LAST_WORD_TIMEOUT_S:g} s of its last word")

    async def _watch(self, vitals: Vitals) -> None:
        """Kills once, and not while it is stopped: `_end` has a limit for that."""
        while True:
            await asyncio.sleep(vitals.interval_s)
            if self._is_stopping:
                continue
            if (why := vitals.tick()) is not None:
                _log.error(
                    "the engine process does not work any more; it is killed",
                    why=why,
                    engine_pid=self.pid,
                )
                self._kill(why)
                await asyncio.Event().wait()  # its end is told by whoever sees it
            elif vitals.is_in_long_step:
                self._tell_of_life(LifeSign.LONG_STEP)

    def _tell_of_life(self, sign: LifeSign) -> None:
        for listener in self._life_listeners:
            listener(sign)

    async def _conclude(self, child: EngineChild) -> None:
        """Tells of the end, after the last message that was sent before it."""
        how = await child.ended
        await asyncio.sleep(_DRAIN_S)  # what it wrote last is still on its way through the socket
        if not self._is_stopping:
            self._died.set_result(
                f"the engine process ended: {last.message}" if (last := self._last_word) else how
            )
        self._inbox.put_nowait(None)

    async def _receive(self) -> EngineMessage | None:
        """The next message; None once the process is gone and everything it sent was read."""
        message = await self._inbox.get()
        if message is None:
            self._inbox.put_nowait(None)
        return message

    def _kill(self, why: str) -> None:
        if self._child is not None:
            self._child.kill(why)

    async def _end(self, child: EngineChild) -> None:
        with contextlib.suppress(WorkerLost):
            await self.send(Stop())
        done, _ = await asyncio.wait((child.ended,), timeout=_STOP_TIMEOUT_S)
        if not done:
            child.kill()
            await child.ended
        await child.close()
