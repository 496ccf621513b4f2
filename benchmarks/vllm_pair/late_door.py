"""A decode server's door, at which requests that bring a prompt's blocks stand in line.

A long line is what lets a lease pass: the server does not know such a request before it is through,
and so does not renew the lease. Every third goes through at once, as all else does: a router that
saw none succeed would soon bring no blocks any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from cluster.process.background import cancel, until_one_ends

_WITH_BLOCKS = b'"remote_engine_id"'
_END_OF_HEAD = b"\r\n\r\n"
_CHUNK_BYTES = 1 << 20
"""More than any request here: one that is whole comes in one piece."""


class LateDoor:
    """Before the server at `url`. `hold_s`: how long the line is by now."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self.hold_s = 0.0
        self.held: list[Any] = []
        """The prompts of those that stood in line, as the server was told them."""
        self._num_brought = 0
        self.url = ""
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LateDoor]:
        """At a port of its own."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2 * _CHUNK_BYTES)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            try:
                yield self
            finally:
                await cancel(self._serving)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            back_reader, back_writer = await asyncio.open_connection(self._host, self._port)
            await until_one_ends(self._asked(reader, back_writer), _answered(back_reader, writer))

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while piece := await reader.read(_CHUNK_BYTES):
                if self.hold_s and _WITH_BLOCKS in piece:
                    await self._stand_in_line(piece)
                writer.write(piece)
                await writer.drain()

    async def _stand_in_line(self, request: bytes) -> None:
        self._num_brought += 1
        if self._num_brought % 3:
            self.held.append(json.loads(request.split(_END_OF_HEAD, 1)[-1])["prompt"])
            await asyncio.sleep(self.hold_s)


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer), contextlib.suppress(OSError):
        while piece := await reader.read(_CHUNK_BYTES):
            writer.write(piece)
            await writer.drain()
