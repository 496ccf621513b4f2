"""The engine's end of the line to its server: commands in, messages out, over local ZMQ sockets.

Sending never blocks: the server's reading speed must not reach the step loop. What the server has
not read yet waits in memory; it is bounded by what the running requests can still produce.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog
import zmq

from engine.contract.commands import Command
from engine.contract.messages import EngineMessage, Frame, Stepped

_LOG = structlog.get_logger()
_MAX_ASIDE = 16


@dataclass(frozen=True, slots=True)
class UnreadableCommand:
    """What came instead of a command for this request, which therefore cannot go on."""

    request_id: str


Received = Command | UnreadableCommand


class CommandSource(Protocol):
    """Where the loop gets its commands."""

    def receive(self, timeout_ms: float) -> Sequence[Received]:
        """Everything that is there; waits at most `timeout_ms` for the first (0: not at all)."""


class MessageSink(Protocol):
    """Where the loop's frames go."""

    def send(self, message: EngineMessage) -> None:
        """Queues the message; never blocks."""


class Channel(CommandSource, MessageSink, Protocol):
    """Both ends of the loop's line."""


class ZmqChannel:
    """A Channel, over two sockets which the server has bound. Used from one thread."""

    def __init__(self, *, commands_address: str, frames_address: str) -> None:
        self._context = zmq.Context()
        self._frames_address = frames_address
        self._commands = self._context.socket(zmq.PULL)
        self._frames = self._context.socket(zmq.PUSH)
        for socket, address in (
            (self._commands, commands_address),
            (self._frames, frames_address),
        ):
            socket.set_hwm(0)
            socket.connect(address)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)

    def receive(self, timeout_ms: float) -> list[Received]:
        """See CommandSource. Raises msgspec.MsgspecError for what names no request either: the
        server and this process do not understand each other."""
        if timeout_ms > 0 and not self._commands.poll(max(1, round(timeout_ms))):
            return []
        commands: list[Received] = []
        while True:
            try:
                packed = self._commands.recv(zmq.NOBLOCK)
            except zmq.Again:
                return commands
            commands.append(self._decode(packed))

    def _decode(self, packed: bytes) -> Received:
        try:
            return self._decoder.decode(packed)
        except msgspec.MsgspecError:
            _LOG.exception("a command could not be read; its request ends", num_bytes=len(packed))
            return UnreadableCommand(_request_of(packed))

    def send(self, message: EngineMessage) -> None:
        """See MessageSink."""
        self._frames.send(self._encoder.encode(message))

    def beside(self) -> SideDoor:
        """For one other thread, which has ended, and closed it, before this is closed."""
        return SideDoor(self._context.socket(zmq.PUSH), self._frames_address)

    def close(self, linger_ms: int = 1000) -> None:
        """Waits at most `linger_ms` for the last messages to leave."""
        self._commands.close(linger=0)
        self._frames.close(linger=linger_ms)
        self._context.term()


class SideDoor:
    """A MessageSink of another thread than the loop's, for words that may be lost."""

    def __init__(self, socket: zmq.Socket[bytes], frames_address: str) -> None:
        self._socket = socket
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(_MAX_ASIDE)
        socket.connect(frames_address)
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, message: EngineMessage) -> None:
        """See MessageSink. A server that reads none misses none."""
        with contextlib.suppress(zmq.Again):
            self._socket.send(self._encoder.encode(message), zmq.NOBLOCK)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()


class _Addressed(msgspec.Struct):
    """As much of a command as says whose it is."""

    request_id: str = ""
    request: _Addressed | None = None


def _request_of(packed: bytes) -> str:
    """The request that a command is for. Raises msgspec.MsgspecError when it names none."""
    command = msgspec.msgpack.decode(packed, type=_Addressed)
    request_id = command.request_id or (command.request.request_id if command.request else "")
    if not request_id:
        raise msgspec.ValidationError("a command that cannot be decoded names no request")
    return request_id


class MemoryChannel:
    """A Channel inside one process: for tests."""

    def __init__(self) -> None:
        self.commands: deque[Received] = deque()
        self.messages: list[EngineMessage] = []

    def receive(self, timeout_ms: float) -> list[Received]:
        """What was put into `commands`; never waits."""
        ready = list(self.commands)
        self.commands.clear()
        return ready

    def send(self, message: EngineMessage) -> None:
        """Kept in `messages`."""
        self.messages.append(message)

    def frames(self) -> list[Frame]:
        """The frames among the messages."""
        return [message.frame for message in self.messages if isinstance(message, Stepped)]
