"""What a hosted process has said and nobody has fetched yet."""

from __future__ import annotations

import asyncio

from cluster.launcher.protocol import ProcessExit
from cluster.process.pipe import MAX_LINE_BYTES
from cluster.process.startup import ProcessReport

HostedNews = bytes | ProcessReport | ProcessExit
"""Output as it was printed, what the process says of itself, and how it ended: the last."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Of output, for a launcher that does not fetch it: the process must not stand still for that."""


class Outbox:
    """Filled and fetched by tasks of one event loop. Also the ProcessOutput of the process."""

    def __init__(self) -> None:
        self._waiting: list[HostedNews] = []
        self._num_bytes = 0
        self._num_lost = 0
        self._has_news = asyncio.Event()

    @property
    def tail(self) -> tuple[str, ...]:
        """Nothing: whoever fetches the output remembers its end."""
        return ()

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """All that is printed, to its end."""
        while chunk := await stream.read(MAX_LINE_BYTES):
            self._print(chunk)

    def put(self, piece: ProcessReport | ProcessExit) -> None:
        """Is never lost."""
        self._waiting.append(piece)
        self._has_news.set()

    async def take(self) -> list[HostedNews]:
        """All there is, in order; waits until there is some."""
        await self._has_news.wait()
        return self.take_rest()

    def take_rest(self) -> list[HostedNews]:
        """All there is, which may be nothing."""
        self._has_news.clear()
        taken, self._waiting = self._waiting, []
        if self._num_lost:
            taken.insert(0, f"[{self._num_lost} bytes of output are lost]\n".encode())
        self._num_bytes = self._num_lost = 0
        return taken

    def _print(self, chunk: bytes) -> None:
        if self._num_bytes + len(chunk) > MAX_WAITING_BYTES:
            self._num_lost += len(chunk)
            return
        self._num_bytes += len(chunk)
        self._waiting.append(chunk)
        self._has_news.set()
