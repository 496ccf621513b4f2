"""One connection of the front's protocol without a socket: reads are given, writes are kept."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from router.api.http.asgi import AsgiMessage, Receive, Scope, Send
from router.api.http.connection import READ_BYTES, Connection
from router.api.http.gathered_writes import SendTurns
from router.api.http.protocol import FrontProtocol, protocol_with
from router.api.http.read_turns import ReadTurns
from tests.router.front_fakes import small_limits

_PORTS = itertools.count(1)


class FakeTransport(asyncio.Transport):
    """As uvloop's: what is written after the connection was lost raises."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__({"peername": (host, next(_PORTS)), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.has_closed = False
        self.is_lost = False
        self.unread_bytes = 0
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: Any) -> None:
        if self.is_lost:
            raise RuntimeError("unable to perform operation; the handler is closed")
        if not self.has_closed:
            self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.has_closed

    def close(self) -> None:
        self.has_closed = True

    abort = close

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Wire:
    """An application that tells each request's path and body, when it may."""

    def __init__(
        self,
        door: type[FrontProtocol] | None = None,
        *,
        turns: ReadTurns | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """With `turns` its bytes come as a server's do: by `read`."""
        self.may_answer = asyncio.Event()
        self.started: list[str] = []
        self.left: list[str] = []
        """Paths of requests whose client was gone before their answer."""
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self.state = ServerState()
        self.protocol = (door or protocol_with(small_limits()))(config, self.state, {})
        self.transport = FakeTransport(host)
        self.connection: Connection | None = None
        if turns is None:
            self.protocol.connection_made(self.transport)
        else:
            room = memoryview(bytearray(READ_BYTES))
            self.connection = Connection(self.protocol, turns, SendTurns(), room)
            self.connection.connection_made(self.transport)

    def read(self, data: bytes) -> None:
        """One read, of so much as fits."""
        assert self.connection is not None and not self.transport.is_paused
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    async def settle(self) -> None:
        """Until nothing is left to do for what was read."""
        for _ in range(10_000):
            if all(task.done() for task in self.state.tasks):
                return
            await asyncio.sleep(0)
        raise AssertionError("a request is still under way")

    async def turns(self, count: int = 20) -> None:
        """Lets what is under way come to its wait."""
        for _ in range(count):
            await asyncio.sleep(0)

    @property
    def answers(self) -> list[bytes]:
        """Bodies of the answers, in order."""
        heads = self.transport.written.split(b"HTTP/1.1 ")[1:]
        return [head.split(b"\r\n\r\n", 1)[1] for head in heads]

    def lose(self) -> None:
        """As when the client resets the connection."""
        self.transport.has_closed = True
        (self.connection or self.protocol).connection_lost(ConnectionResetError())
        self.transport.is_lost = True

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.started.append(scope["path"])
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if await self._is_gone(receive):
            self.left.append(scope["path"])
        text = scope["path"].encode() + b" " + body
        length = (b"content-length", str(len(text)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": text})

    async def _is_gone(self, receive: Receive) -> bool:
        """Waits until the answer may be given, or the client has left."""
        gone: asyncio.Future[AsgiMessage] = asyncio.ensure_future(receive())
        may = asyncio.ensure_future(self.may_answer.wait())
        await asyncio.wait([gone, may], return_when=asyncio.FIRST_COMPLETED)
        is_gone = gone.done()
        gone.cancel()
        may.cancel()
        return is_gone
