"""One HTTP request and its answer.

    read_body -> reply                                   one JSON body
              -> start_stream -> send_event* -> end_stream   server-sent events (EventStream)

`until_disconnect` runs the work between, and cancels it the moment the client is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from cluster.deadline import Clock
from cluster.errors import Cancelled, InvalidRequest, RequestTooLarge, SlowRequest
from cluster.process.background import completed
from cluster.process.loop_share import LoopShare
from router.api.http.asgi import AsgiMessage, Receive, Scope, Send
from router.front.body_account import HeldBody
from router.front.caller import Caller, caller_at
from router.front.limits import DoorLimits
from router.front.reader_patience import within_reader_timeout
from router.front.text_work import LARGE_BODY_BYTES
from router.tenants.tenant import Tenant

_JSON_TYPE = (b"content-type", b"application/json")
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Exchange:
    """Owned by one endpoint call. Raises Cancelled when the client leaves or does not read."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: DoorLimits) -> None:
        self.scope = scope
        self._receive = receive
        self._send_raw = send
        self._limits = limits
        self._asked_headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.headers: list[tuple[bytes, bytes]] = []
        """Of the answer, beside its own; added to before it begins."""

    @property
    def request_id(self) -> str:
        """Unique in the fleet; made by the front door."""
        return str(self.scope["state"]["request_id"])

    @property
    def tenant(self) -> Tenant:
        """Who asks; the front door has seen its key."""
        found: Tenant = self.scope["state"]["tenant"]
        return found

    @property
    def clock(self) -> Clock:
        """By which this exchange is timed."""
        return self._limits.clock

    @property
    def arrived_s(self) -> float:
        """When the request's first byte came, on `clock`."""
        return float(self.scope["state"]["arrived_s"])

    def caller(self) -> Caller:
        """Whose connection it came by."""
        known: Caller | None = self.scope["state"].get("caller")
        return known or caller_at(*(self.scope.get("client") or ("", 0)))

    def header(self, name: bytes) -> str | None:
        """The first request header of that lower-case name."""
        value = self._asked_headers.get(name)
        return None if value is None else str(value.decode("latin-1"))

    def headers_named(self, name: bytes) -> list[str]:
        """All of that lower-case name."""
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]

    async def read_json_body(self, held: HeldBody, share: LoopShare) -> bytes:
        """The whole body, put together in its share of the loop's turns. Raises InvalidRequest
        (type), RequestTooLarge and SlowRequest."""
        self._check_type()
        self._check_size(int(self.header(b"content-length") or 0))
        if self.scope["state"]["has_arrived"]():
            return await self._read(held, share)  # no timer: there is nothing to wait for
        timeout_s = self._limits.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s) as limit:
                with held.arriving(limit):
                    return await self._read(held, share)
        except TimeoutError:
            raise SlowRequest(
                f"the body did not arrive within {timeout_s:g} s; send it faster"
            ) from None

    async def reply(
        self, body: bytes, *, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        """One complete JSON answer."""
        length = (b"content-length", str(len(body)).encode())
        sent = [_JSON_TYPE, length, *self.headers, *(headers or [])]
        await self._send({"type": "http.response.start", "status": status, "headers": sent})
        await self._send({"type": "http.response.body", "body": body})

    async def start_stream(self) -> None:
        """200 and the headers of server-sent events."""
        headers = [*_STREAM_HEADERS, *self.headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    def takes_events(self) -> bool:
        """Whether `write_event` may be called: a stream has begun, its reader is not behind."""
        takes: bool = self.scope["state"]["takes_pieces"]()
        return takes

    def write_event(self, data: bytes) -> None:
        """One event, at once; where the reader is behind by now it waits in the buffer."""
        self.scope["state"]["write_piece"](b"data: %b\n\n" % data)

    async def send_event(self, data: bytes) -> None:
        """One event; waits while the client does not read, up to the limit."""
        body = b"data: " + data + b"\n\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def write_block(self, block: bytes) -> None:
        """Events as they are written, with names of their own; else as `write_event`."""
        self.scope["state"]["write_piece"](block)

    async def send_block(self, block: bytes) -> None:
        """As `write_block`; else as `send_event`."""
        await self._send({"type": "http.response.body", "body": block, "more_body": True})

    async def end_blocks(self) -> None:
        """Nothing follows."""
        await self._send({"type": "http.response.body", "body": b""})

    async def send_comment(self, text: bytes) -> None:
        """A line that readers of events skip."""
        body = b": " + text + b"\n\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end_stream(self) -> None:
        """The closing `[DONE]`."""
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def until_disconnect(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work`. Raises Cancelled, after the work has ended, when the client leaves first.

        Without a task of its own, or one that waits for the client: two of them took 60 us of each
        request (2-core machine).
        """
        leaving = _Leaving()
        self.scope["state"]["on_leaving"](leaving.cut)
        try:
            await completed(work)
        except asyncio.CancelledError:
            if leaving.is_all_that_cancels():
                raise Cancelled("the client closed the connection") from None
            raise
        finally:
            leaving.close()

    async def _read(self, held: HeldBody, share: LoopShare) -> bytes:
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Cancelled("the client closed the connection while sending")
            body += message.get("body", b"")
            self._check_size(len(body))
            held.grow_to(len(body))
            if not message.get("more_body", False):
                if len(body) > LARGE_BODY_BYTES:
                    await share.breathe()  # 8 MB take 2 ms to copy
                return bytes(body)

    async def _send(self, message: AsgiMessage) -> None:
        """A timer only where there is something to wait for: it costs a third of an event."""
        if not self.scope["state"]["is_backed_up"]():
            await self._send_raw(message)
            return
        try:
            await within_reader_timeout(self._send_raw(message), self._limits.reader_timeout_s)
        except Cancelled:
            self.scope["state"]["abort_connection"]()
            raise

    def _check_type(self) -> None:
        given = (self.header(b"content-type") or "").split(";")[0].strip().lower()
        if given != "application/json":
            raise InvalidRequest(
                f"content-type is {given[:100]!r}; send the body as application/json"
            )
        encoding = (self.header(b"content-encoding") or "identity").lower()
        if encoding != "identity":
            raise InvalidRequest(
                f"content-encoding is {encoding[:50]!r}; send the body uncompressed"
            )

    def _check_size(self, num_bytes: int) -> None:
        limit = self._limits.max_body_bytes
        if num_bytes > limit:
            raise RequestTooLarge(f"the body has more than {limit} bytes; shorten the request")


class _Leaving:
    """Of a client, while its request runs in the current task."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._has_left = False

    def cut(self) -> None:
        """The client is gone."""
        if self._task is not None and not self._has_left:
            self._has_left = True
            self._task.cancel()

    def is_all_that_cancels(self) -> bool:
        """True when nobody else cancels the task as well. Asked once, when it is cancelled."""
        return self._has_left and self._task is not None and self._task.uncancel() == 0

    def close(self) -> None:
        """The work has ended: leaving changes nothing any more."""
        self._task = None
