"""The least that a front can do: bytes of a connection to a worker and back, unread.

Run as `python -m benchmarks.fronts.pass_through PORT WORKER_PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One end; what comes before the other one is there waits."""

    def __init__(self, other: Side | None = None, worker_port: int | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self._other = other
        self._worker_port = worker_port
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:

        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        if self._other is not None:
            self._other.meet(self)
        elif self._worker_port is not None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial(self._worker_port))

    async def _dial(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Side(self), "127.0.0.1", port)

    def meet(self, other: Side) -> None:
        """The worker's end is there."""
        self._other = other
        if other.transport is not None and self._early:
            other.transport.write(self._early)

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.write(data)
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._other is not None and self._other.transport is not None:
            self._other.transport.close()


async def _serve(port: int, worker_port: int) -> None:
    loop = asyncio.get_running_loop()
    make = lambda: Side(worker_port=worker_port)  # noqa: E731
    server = await loop.create_server(make, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
