"""A pipe's reading end as a stream of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

_LIMIT_BYTES = 2**20
"""A line may be this long."""


@asynccontextmanager
async def reading(file: IO[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    """Owns `file` and closes it at the end."""
    stream = asyncio.StreamReader(limit=_LIMIT_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), file
    )
    try:
        yield stream
    finally:
        transport.close()
        await asyncio.sleep(0)  # the file is closed in the next turn of the loop
