"""uvicorn's HTTP protocol with the limits that it does not have itself.

    connected -> head (timer, byte limit) -> request running -> idle (uvicorn's timer) -> head ...
                                                             -> closing (linger timer) -> aborted

A slow or huge head is answered and closed, and so is a body of crumbs; a client that does not read
the end of its answer is aborted after a while; over a number of connections only operators are
served. Pieces have limits because they and not bytes take the loop's time: 6400 headers in 32 KiB
took 3 ms and chunks of one byte 8 ms a read; 100 headers take 0.1 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from cluster.errors import HeadTooLarge, InvalidRequest, SlowRequest, SplitserveError, status_of
from router.api.http.ahead import RoomAhead
from router.api.http.errors import error_body
from router.api.http.places import ConnectionPlace, ConnectionPlaces
from router.api.http.turns import HEAD, NOTHING, TurnProtocol
from router.api.http.unread_answers import AnswerWatch, UnreadAnswers
from router.front.caller import caller_at
from router.front.limits import DoorLimits

CHUNKS_AT_ONCE = 1000
"""Of a body, of any size; each further thousand has to carry `MIN_CHUNK_BYTES` a chunk."""
MIN_CHUNK_BYTES = 1024
"""A chunk takes 1 to 2 us: a read of 64 KiB, which is the most, some 100."""


class FrontProtocol(TurnProtocol):
    """One connection. Made by `protocol_with`."""

    places: ConnectionPlaces
    unread: UnreadAnswers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._bare_bytes = 0  # that came since the last byte of a body
        self._num_chunks = 0
        self._thousand_start = 0  # on the count of body bytes
        self._fault: SplitserveError | None = None
        self._on_leaving: Callable[[], None] | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._watch = AnswerWatch(transport, self.limits)
        self.caller = caller_at(*(self.client or ("", 0)))
        self._place = self.places.take(self.caller)
        if self._place is None:
            transport.abort()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._watch.end()
        self._tell_of_leaving()
        self.unread.gone(self)
        if self._place is not None:
            self.places.leave(self.caller, self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        body_bytes = self._body_bytes
        super().data_received(data)
        if self._reading is NOTHING or self.transport.is_closing():
            return
        if self._reading is HEAD and self._head_timer is None:  # one that came whole needs none
            self._start_head_timer()
        if self._body_bytes > body_bytes:
            self._bare_bytes = 0
        else:
            self._bare_bytes += len(data)
            self._check_bare_bytes()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._watch.begins()
        self.scope["state"]["arrived_s"] = self.limits.clock()
        self._bare_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of a head, or after the last chunk of a body."""
        super().on_header(name, value)
        limit = self.limits.max_headers
        if len(self.headers) > limit:
            self._fail(HeadTooLarge(f"the request has more than {limit} headers; send fewer"))

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value) + 4
        if size > self.limits.max_head_bytes:
            self._fail(self._huge_head())
        self._bare_bytes = self._num_chunks = 0
        state: dict[str, Any] = self.scope["state"]
        state["abort_connection"] = self.transport.abort
        state["caller"] = self.caller
        state["crowded"] = self._place is ConnectionPlace.RESERVE
        state["max_refused_bytes"] = self.limits.max_refused_bytes
        state["is_backed_up"] = self._is_backed_up
        state["has_arrived"] = self._has_arrived
        state["takes_pieces"] = self._takes_pieces
        state["write_piece"] = self._write_piece
        state["on_leaving"] = self._watch_for_leaving
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """The parser calls it for each chunk."""
        self._num_chunks += 1
        if self._num_chunks % CHUNKS_AT_ONCE == 0:
            self._check_chunks()

    def on_response_complete(self) -> None:
        self._watch.answered()
        super().on_response_complete()
        if self.transport.is_closing():
            self._linger()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread.waits(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.gone(self)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._linger()

    def _is_backed_up(self) -> bool:
        """What was written waits for its reader: the next write waits as well."""
        return bool(self.flow.write_paused)

    def _takes_pieces(self) -> bool:
        """Of an answer in chunks that has begun and goes on; False where its reader is behind."""
        cycle = self.cycle
        return not (
            self.flow.write_paused
            or cycle.disconnected
            or cycle.response_complete
            or not cycle.response_started
            or not cycle.chunked_encoding
        )

    def _write_piece(self, data: bytes) -> None:
        """Where pieces are taken: past all that an ASGI message goes through, which took a third of
        a token's time."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _has_arrived(self) -> bool:
        """All of the request that is being answered."""
        return not self.cycle.more_body

    def _watch_for_leaving(self, listener: Callable[[], None]) -> None:
        """`listener`, in place of the one before, is told that the client is gone: at once where it
        is already. Only who reads notices."""
        self._on_leaving = listener
        self.flow.resume_reading()
        if self.cycle.disconnected:
            self._tell_of_leaving()

    def _tell_of_leaving(self) -> None:
        if self._on_leaving is not None:
            self._on_leaving()

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this where the parser, or we in its callbacks, met something wrong."""
        if self._is_answering():
            self._answer_no_more()
        else:
            self._refuse(self._fault or InvalidRequest("the request is not valid HTTP"))

    def _fail(self, error: SplitserveError) -> NoReturn:
        """Ends the parsing, from a callback of the parser's."""
        self._fault = error
        raise httptools.HttpParserError(error.message)

    def _start_head_timer(self) -> None:
        timeout_s = self.limits.request_timeout_s
        self._head_timer = self.loop.call_later(timeout_s, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        timeout_s = self.limits.request_timeout_s
        if self._reading is NOTHING:
            self.transport.close()  # it never said a word: nobody waits for an answer
        else:
            self._refuse(SlowRequest(f"the head did not arrive within {timeout_s:g} s"))

    def _check_bare_bytes(self) -> None:
        if self._bare_bytes > self.limits.max_head_bytes:
            self._refuse(self._huge_head())

    def _huge_head(self) -> HeadTooLarge:
        limit = self.limits.max_head_bytes
        return HeadTooLarge(f"the head of the request has more than {limit} bytes; shorten it")

    def _check_chunks(self) -> None:
        num_bytes = self._body_bytes - self._thousand_start
        self._thousand_start = self._body_bytes
        if self._num_chunks > CHUNKS_AT_ONCE and num_bytes < CHUNKS_AT_ONCE * MIN_CHUNK_BYTES:
            self._fail(
                InvalidRequest(
                    f"the body has more than {CHUNKS_AT_ONCE} chunks and they have less than "
                    f"{MIN_CHUNK_BYTES} bytes each; send larger ones, or a content-length"
                )
            )

    def _refuse(self, error: SplitserveError) -> None:
        """Answers, unless an answer has begun, and closes."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_whole_answer(error))
            self._end_cycle()
        self.transport.close()
        self._linger()

    def _end_cycle(self) -> None:
        """A request that was answered here, and still waits for its body, answers no more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._tell_of_leaving()

    def _linger(self) -> None:
        if self._linger_timer is None:
            wait_s = self.limits.reader_timeout_s
            self._linger_timer = self.loop.call_later(wait_s, self.transport.abort)


def _whole_answer(error: SplitserveError) -> bytes:
    body = error_body(error)
    head = (
        b"content-type: application/json\r\nconnection: close\r\n"
        b"content-length: " + str(len(body)).encode() + b"\r\n\r\n"
    )
    return STATUS_LINE[status_of(error).http] + head + body


def protocol_with(limits: DoorLimits) -> type[FrontProtocol]:
    """A protocol class for uvicorn's `http` option: one door, whose connections share its room."""
    shared = {
        "limits": limits,
        "room_ahead": RoomAhead(limits.max_all_ahead_bytes),
        "places": ConnectionPlaces(limits),
        "unread": UnreadAnswers(limits.max_unread_bytes),
    }
    return type("LimitedFrontProtocol", (FrontProtocol,), shared)
