"""A pipe's reading end as a stream of the event loop, and the lines in what it gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

MAX_LINE_BYTES = 64 * 1024


@asynccontextmanager
async def reading(file: IO[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    """Owns `file` and closes it at the end."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), file
    )
    try:
        yield stream
    finally:
        transport.close()
        await asyncio.sleep(0)  # the file is closed in the next turn of the loop


class Lines:
    """Chunks in, lines out; one longer than MAX_LINE_BYTES comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return lines

    def take_rest(self) -> list[bytes]:
        """What stood after the last line's end, if anything did."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
