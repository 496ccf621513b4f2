"""Clients of a front: requests one after the other, or streams side by side."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import cast

PROMPT = "The quick brown fox jumps over the lazy dog. "
_LENGTH = b"content-length: "


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:

        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._data = b""
        self._is_stream = False
        self._tail = b""
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set with the first byte of the answer."""

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("cut off before the end"))

    def data_received(self, data: bytes) -> None:
        if not self.began.done():
            self.began.set_result(None)
        if self._is_stream:
            self._tail = (self._tail + data)[-16:]
            is_over = self._tail.endswith(b"0\r\n\r\n")
        else:
            self._data += data
            is_over = _is_whole(self._data)
        if is_over and not self._done.done():
            self._done.set_result(None)

    def ask(self, number: int, max_tokens: int, *, stream: bool) -> asyncio.Future[None]:
        """Sends a request; the future is over with its answer."""
        loop = asyncio.get_running_loop()
        self._data = self._tail = b""
        self._done, self.began = loop.create_future(), loop.create_future()
        self._is_stream = stream
        asked = {"model": "smollm2", "prompt": f"{number} {PROMPT}", "max_tokens": max_tokens}
        body = json.dumps({**asked, "stream": stream}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        self._transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        return self._done

    def close(self) -> None:
        """Hangs up."""
        self._transport.abort()


def _is_whole(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"refused: {data[:300]!r}")
    start = head.lower().find(_LENGTH)
    if start < 0:
        return body.endswith(b"0\r\n\r\n")
    size = head[start + len(_LENGTH) :].split(b"\r\n")[0]
    return len(body) >= int(size)


async def connect(port: int, count: int) -> list[Client]:
    """So many."""
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Client, "127.0.0.1", port))[1] for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Took:
    """Of one phase."""

    wall_s: float
    each_ms: list[float]


async def requests(port: int, num_clients: int, num_requests: int) -> Took:
    """Each client asks for one token, again and again."""
    clients = await connect(port, num_clients)
    took_ms: list[float] = []
    began = time.perf_counter()

    async def ask(client: Client, count: int) -> None:
        for _ in range(count):
            start = time.perf_counter()
            await client.ask(len(took_ms), 1, stream=False)
            took_ms.append((time.perf_counter() - start) * 1e3)

    count = max(2, num_requests // num_clients)
    await asyncio.gather(*(ask(client, count) for client in clients))
    wall_s = time.perf_counter() - began
    for client in clients:
        client.close()
    return Took(wall_s, took_ms)


async def streams(port: int, num_streams: int, num_tokens: int) -> Took:
    """All at once, to their ends."""
    clients = await connect(port, num_streams)
    began = time.perf_counter()
    await asyncio.gather(
        *(client.ask(number, num_tokens, stream=True) for number, client in enumerate(clients))
    )
    wall_s = time.perf_counter() - began
    for client in clients:
        client.close()
    return Took(wall_s, [])
