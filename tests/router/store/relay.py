"""A wire between one router and the store, which a test can cut."""

from __future__ import annotations

import asyncio
import contextlib

from tests.redis_server import RedisServer


class Relay:
    """Passes on what comes, until it is cut."""

    def __init__(self, redis: RedisServer) -> None:
        self._redis = redis
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0
        self._passes = asyncio.Event()
        self._passes.set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Relay:
        await self.mend()
        return self

    async def __aexit__(self, *cause: object) -> None:
        self.heal()
        await self.cut()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Connections end, and new ones are refused."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()

    def drop(self) -> None:
        """Nothing comes through any more, either way; no connection ends, and nobody is told."""
        self._passes.clear()

    def heal(self) -> None:
        """After `drop`. What was on its way comes late, as what TCP sends again does."""
        self._passes.set()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await self._passes.wait()
            from_store, to_store = await asyncio.open_connection("127.0.0.1", self._redis.port)
            await asyncio.gather(
                self._copy(reader, to_store), self._copy(from_store, writer), return_exceptions=True
            )

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while some := await reader.read(65_536):
                await self._passes.wait()
                writer.write(some)
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()
