"""What is the same for every answer: the request id, what is left of a key's limits, and leaving a
half-read request cleanly.

A server that closes a connection with unread bytes in it resets it, and the client may lose the
answer. So an answer to a request that was not read to its end says `connection: close`, and the
rest is read and thrown away for a moment before its last byte is sent; not more than
so many bytes, for who sends on and on would have them read at the speed of the line.
"""

from __future__ import annotations

import asyncio

from router.api.http.asgi import AsgiMessage, Receive, Scope, Send, header_of
from router.api.http.rate_headers import rate_headers
from router.tenants.tenant import Tenant

DISCARD_S = 1.0


class Delivery:
    """Stands between the server and the application, for one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, echoed_id: str) -> None:
        self._state = scope["state"]
        self._receive = receive
        self._send = send
        self._echoed_id = echoed_id
        self._unread = _has_body(scope)
        self.started = False

    async def receive(self) -> AsgiMessage:
        """As ASGI's, and remembers whether the body was read to its end."""
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: AsgiMessage) -> None:
        """As ASGI's."""
        if message["type"] == "http.response.start":
            await self._send(self._with_headers(message))
        elif self._unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._discard()
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await self._send(message)

    def _with_headers(self, message: AsgiMessage) -> AsgiMessage:
        self.started = True
        headers = [*message.get("headers", []), (b"x-request-id", self._echoed_id.encode())]
        tenant: Tenant | None = self._state.get("tenant")
        if tenant is not None and tenant.account is not None:
            headers += rate_headers(tenant.account)
        if self._unread:
            headers.append((b"connection", b"close"))
        return {**message, "headers": headers}

    async def _discard(self) -> None:
        """What is too much is not read: the client may still read its answer, until the time is
        over and the connection aborted."""
        left_bytes: int = self._state["max_refused_bytes"]
        try:
            async with asyncio.timeout(DISCARD_S):
                while self._unread and left_bytes > 0:
                    left_bytes -= len((await self.receive()).get("body", b""))
                if self._unread:
                    await asyncio.Event().wait()
        except TimeoutError:
            self._unread = False
            if left_bytes <= 0:
                self._state["abort_connection"]()


def _has_body(scope: Scope) -> bool:
    length = header_of(scope, b"content-length")
    return length not in (None, "0") or header_of(scope, b"transfer-encoding") is not None
