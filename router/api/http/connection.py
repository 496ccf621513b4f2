"""A connection's bytes between its transport and its protocol: read a little at a time, each in its
turn, and sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from cluster.logs import get_logger
from router.api.http.gathered_writes import GatheringTransport, SendTurns
from router.api.http.protocol import FrontProtocol
from router.api.http.read_turns import ReadTurns

READ_BYTES = 64 * 1024
"""A read that has to wait is copied all the same. A body that is read by the router itself comes
whole, and so does most of what is refused: to close over the rest would reset the connection."""
_log = get_logger("router.api")


class Connection(asyncio.BufferedProtocol):
    """Between the transport and a FrontProtocol. Made by `connections_of`."""

    def __init__(
        self, protocol: FrontProtocol, turns: ReadTurns, sends: SendTurns, room: memoryview
    ) -> None:
        """`room`: for one read; connections share it, for nothing stays there."""
        self._protocol = protocol
        self._turns = turns
        self._sends = sends
        self._room = room
        self._kept = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._protocol.connection_made(GatheringTransport(self._transport, self._sends))

    def connection_lost(self, exc: Exception | None) -> None:
        self._turns.leave(self._address, self)
        self._kept = b""
        self._protocol.connection_lost(exc)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._room[:nbytes])
        if not self._kept and self._turns.has_turn():
            self._protocol.data_received(data)
            return
        assert self._transport is not None
        self._transport.pause_reading()
        self._kept += data  # another read, where a body that was asked for has read on
        self._turns.wait(self._address, self)

    def read_on(self) -> None:
        """See WaitingReader."""
        assert self._transport is not None
        data, self._kept = self._kept, b""
        try:
            self._protocol.data_received(data)
        except Exception:  # the loop's own reading would end it as well
            _log.exception("a connection's bytes could not be read; it is cut")
            self._transport.abort()
            return
        if not self._protocol.flow.read_paused:
            self._transport.resume_reading()

    @property
    def _address(self) -> str:
        return self._protocol.caller.address


def connections_of(door: type[FrontProtocol], turns: ReadTurns) -> Callable[..., Connection]:
    """For uvicorn's `http` option."""
    sends, room = SendTurns(), memoryview(bytearray(READ_BYTES))

    def connection(**settings: Any) -> Connection:
        return Connection(door(**settings), turns, sends, room)

    return connection
