"""What is the same for every answer: the request id, and leaving a half-read request cleanly.

A server that closes a connection with unread bytes in it resets it, and the client may lose the
answer. So an answer to a request that was not read to its end says `connection: close`, and the
rest is read and thrown away for a moment before its last byte is sent.
"""

from __future__ import annotations

import asyncio

from router.api.http.asgi import AsgiMessage, Receive, Scope, Send, header_of

DISCARD_S = 1.0


class Delivery:
    """Stands between the server and the application, for one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, echoed_id: str) -> None:
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
        if self._unread:
            headers.append((b"connection", b"close"))
        return {**message, "headers": headers}

    async def _discard(self) -> None:
        try:
            async with asyncio.timeout(DISCARD_S):
                while self._unread:
                    await self.receive()
        except TimeoutError:
            self._unread = False


def _has_body(scope: Scope) -> bool:
    length = header_of(scope, b"content-length")
    return length not in (None, "0") or header_of(scope, b"transfer-encoding") is not None
