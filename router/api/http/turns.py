"""Requests of one connection, one at a time: what comes ahead of its turn waits as bytes.

    nothing -> head -> body -> answer under way -> answered: what waits is read
                               '- more bytes: set aside, up to a limit; then read and dropped,
                                  up to another; then the connection is aborted

uvicorn makes a request of every head that it has read, tells only the newest of them that the
client has left, and has no limit to their number. Here there is one at most. A client may send
ahead (RFC 9112, 9.3.2), and is answered in order; it may also be told `connection: close`, and then
sends the rest again. Reading never stops for an answer: only who reads notices that a client left.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.api.http.ahead import BytesAhead, RoomAhead
from router.api.http.asgi import header_of
from router.api.http.offered_protocol import parser_of_body
from router.front.limits import DoorLimits

_END_OF_HEAD = b"\r\n\r\n"


class NextByte(Enum):
    """What of a request the next byte belongs to."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


NOTHING, HEAD, BODY = NextByte  # a look at a member through its class costs 0.16 us


class TurnProtocol(HttpToolsProtocol):
    """uvicorn's protocol, without its pipeline."""

    limits: DoorLimits
    room_ahead: RoomAhead

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._reading = NOTHING
        self._head_tail = b""  # of a head that is not complete: its end may lie across two reads
        self._body_bytes = 0  # of all requests of the connection
        self._body_start = 0
        self._ahead = BytesAhead(self.room_ahead, self.limits.max_ahead_bytes)
        self._dropped_bytes = 0  # since the last request began
        self._parser_of_heads = self.parser
        self._parser_of_body: httptools.HttpRequestParser | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._ahead.take()
        del self._parser_of_heads, self._parser_of_body  # which hold us

    def data_received(self, data: bytes) -> None:
        """Parses to the end of one request at most, and keeps the rest."""
        while data and not self.transport.is_closing():
            if self._is_answering():
                self._set_aside(data)
                return
            if self._reading is NOTHING and not (data := self._without_empty_lines(data)):
                return
            cut = self._cut(data)
            super().data_received(data[:cut])
            data = data[cut:]

    def on_message_begin(self) -> None:
        if self._is_answering():
            raise httptools.HttpParserError("a request ahead of its turn")
        self._reading = HEAD
        self._dropped_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._reading = BODY
        self._head_tail = b""
        self._body_start = self._body_bytes
        if self.parser.should_upgrade():
            self._parser_of_body = parser_of_body(self, self.headers)
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The parser calls it for each chunk of a body."""

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Of a head that offers another protocol, the parser calls it before the body."""
        if self._parser_of_body is not None:
            self.parser, self._parser_of_body = self._parser_of_body, None
            return
        self.parser = self._parser_of_heads
        self._reading = NOTHING
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.data_received(self._ahead.take())

    def _is_answering(self) -> bool:
        """A request that has arrived whole."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _cut(self, data: bytes) -> int:
        """Bytes of `data` to the end of the head or body; of a chunked body all, for only the
        parser knows its end: a request that follows in the same read is not answered."""
        if self._reading is BODY:
            left = self._num_left()
            return len(data) if left is None else max(1, left)
        head = self._head_tail + data
        end = head.find(_END_OF_HEAD)
        if end < 0:
            self._head_tail = head[-3:]
            return len(data)
        return end + len(_END_OF_HEAD) - len(self._head_tail)

    def _num_left(self) -> int | None:
        """Bytes of the body that are still to come, where the head tells."""
        length = header_of(self.scope, b"content-length")  # type: ignore[arg-type]
        return None if length is None else int(length) - (self._body_bytes - self._body_start)

    def _without_empty_lines(self, data: bytes) -> bytes:
        """Between requests they are no sign of life, and no end of a head."""
        rest = data.lstrip(b"\r\n")
        if len(rest) < len(data):
            self._drop(len(data) - len(rest))
        return rest

    def _set_aside(self, data: bytes) -> None:
        if not self.cycle.keep_alive or not self._ahead.add(data):
            self._drop(len(data))
            self._answer_no_more()

    def _drop(self, num_bytes: int) -> None:
        """Who sends on and on takes the loop's time for nothing, and loses its answer."""
        self._dropped_bytes += num_bytes
        if self._dropped_bytes > self.limits.max_dropped_bytes:
            self.transport.abort()

    def _answer_no_more(self) -> None:
        """After the answer under way. What comes is still read: closing over bytes that nobody
        has read resets the connection, and the client may lose that answer."""
        self._ahead.take()
        self.cycle.keep_alive = False
