"""uvicorn's HTTP protocol with the limits that it does not have itself.

    connected -> head (timer, byte limit) -> request running -> idle (uvicorn's timer) -> head ...
                                                             -> closing (linger timer) -> aborted

A slow or huge head is answered and closed; a client that does not read the end of its answer is
aborted after a while; over a number of connections only operators are served.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from cluster.errors import InvalidRequest, RequestTooLarge, SlowRequest, SplitserveError, status_of
from router.api.http.errors import error_body
from router.front.limits import DoorLimits


class FrontProtocol(HttpToolsProtocol):
    """One connection. Made by `protocol_with`, which sets `limits`."""

    limits: DoorLimits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._crowded = len(self.connections) > self.limits.max_connections
        if len(self.connections) > self.limits.max_connections + self.limits.reserved_connections:
            transport.abort()
            return
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head_timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            self._check_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["arrived_s"] = self.limits.clock()
        self._head_bytes = 0
        if self._head_timer is None:
            self._start_head_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(name) + len(value) > self.limits.max_head_bytes:
            raise httptools.HttpParserError("header too large")

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        size = len(self.url) + sum(len(key) + len(value) + 4 for key, value in self.headers)
        if size > self.limits.max_head_bytes:
            raise httptools.HttpParserError("head too large")
        state: dict[str, Any] = self.scope["state"]
        state["abort_connection"] = self.transport.abort
        state["crowded"] = self._crowded
        state["is_backed_up"] = self._is_backed_up
        state["has_arrived"] = self._has_arrived
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._linger()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._linger()

    def _is_backed_up(self) -> bool:
        """What was written waits for its reader: the next write waits as well."""
        return bool(self.flow.write_paused)

    def _has_arrived(self) -> bool:
        """All of the request that is being answered."""
        return not self.cycle.more_body

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this for what is not HTTP."""
        self._refuse(InvalidRequest("the request is not valid HTTP, or its head is too large"))

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
        if self._head_bytes == 0:
            self.transport.close()  # it never said a word: nobody waits for an answer
        else:
            self._refuse(SlowRequest(f"the head did not arrive within {timeout_s:g} s"))

    def _check_head(self) -> None:
        limit = self.limits.max_head_bytes
        if self._head_bytes > limit:
            self._refuse(RequestTooLarge(f"the head has more than {limit} bytes"))

    def _refuse(self, error: SplitserveError) -> None:
        body = error_body(error)
        head = (
            b"content-type: application/json\r\nconnection: close\r\n"
            b"content-length: " + str(len(body)).encode() + b"\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[status_of(error).http] + head + body)
        self.transport.close()
        self._linger()

    def _linger(self) -> None:
        if self._linger_timer is None:
            wait_s = self.limits.reader_timeout_s
            self._linger_timer = self.loop.call_later(wait_s, self.transport.abort)


def protocol_with(limits: DoorLimits) -> type[FrontProtocol]:
    """A protocol class for uvicorn's `http` option."""
    return type("LimitedFrontProtocol", (FrontProtocol,), {"limits": limits})
