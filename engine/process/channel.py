"""The engine's end of the line to its server: commands in, messages out, over local ZMQ sockets.

Sending never blocks: the server's reading speed must not reach the step loop. What the server has
not read yet waits in memory; it is bounded by what the running requests can still produce.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec
import structlog
import zmq

from engine.contract.commands import Command
from engine.contract.messages import EngineMessage, Frame, Stepped

_LOG = structlog.get_logger()


class CommandSource(Protocol):
    """Where the loop gets its commands."""

    def receive(self, timeout_ms: float) -> list[Command]:
        """Everything that is there; waits at most `timeout_ms` for the first (0: not at all)."""


class MessageSink(Protocol):
    """Where the loop's frames go."""

    def send(self, message: EngineMessage) -> None:
        """Queues the message; never blocks."""


class ZmqChannel:
    """Both, over two sockets which the server has bound. Used from one thread."""

    def __init__(self, *, commands_address: str, frames_address: str) -> None:
        self._context = zmq.Context()
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

    def receive(self, timeout_ms: float) -> list[Command]:
        """See CommandSource. A command that cannot be decoded is logged and left out."""
        if timeout_ms > 0 and not self._commands.poll(max(1, round(timeout_ms))):
            return []
        commands: list[Command] = []
        while True:
            try:
                packed = self._commands.recv(zmq.NOBLOCK)
            except zmq.Again:
                return commands
            try:
                commands.append(self._decoder.decode(packed))
            except msgspec.MsgspecError:
                _LOG.exception("command cannot be decoded", num_bytes=len(packed))

    def send(self, message: EngineMessage) -> None:
        """See MessageSink."""
        self._frames.send(self._encoder.encode(message))

    def close(self, linger_ms: int = 1000) -> None:
        """Waits at most `linger_ms` for the last messages to leave."""
        self._commands.close(linger=0)
        self._frames.close(linger=linger_ms)
        self._context.term()


class MemoryChannel:
    """Both, inside one process: for tests."""

    def __init__(self) -> None:
        self.commands: deque[Command] = deque()
        self.messages: list[EngineMessage] = []

    def receive(self, timeout_ms: float) -> list[Command]:
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
