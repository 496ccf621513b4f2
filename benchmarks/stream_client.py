"""Streamed completions over plain sockets: a client that costs its machine next to nothing.

Sixteen streams through a full HTTP library take several milliseconds of a core per step, which
would be measured as the server's.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Stream:
    """When the parts of one answer came, in seconds of the monotonic clock."""

    sent_s: float
    arrivals_s: list[float] = field(default_factory=list)
    timing: dict[str, Any] = field(default_factory=dict)
    """The server's own account, in milliseconds: `Timing` of cluster/generation.py; empty for
    another system's server."""

    @property
    def ttft_ms(self) -> float:
        """From sending the request to the first text."""
        return (self.arrivals_s[0] - self.sent_s) * 1e3

    def gaps_ms(self, start_s: float = 0.0, end_s: float = float("inf")) -> list[float]:
        """Between neighbouring parts that both came within the window."""
        inside = [moment for moment in self.arrivals_s if start_s <= moment <= end_s]
        return [(b - a) * 1e3 for a, b in zip(inside, inside[1:], strict=False)]


async def complete(
    port: int, prompt: Sequence[int], max_tokens: int, *, into: Stream | None = None
) -> Stream:
    """Greedy, to the full length. Raises RuntimeError for an answer other than a whole stream.

    `into` is filled while the answer comes, for who wants to watch it.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        stream = into or Stream(sent_s=0.0)
        stream.sent_s = time.monotonic()
        writer.write(_request(prompt, max_tokens))
        await _read(reader, stream)
        return stream
    finally:
        writer.close()


async def complete_all(
    port: int, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[Stream]:
    """All at once."""
    return await asyncio.gather(*(complete(port, prompt, max_tokens) for prompt in prompts))


def step_ms(streams: Sequence[Stream]) -> float:
    """Median gap while every one of the streams was running."""
    start_s = max(stream.arrivals_s[0] for stream in streams)
    end_s = min(stream.arrivals_s[-1] for stream in streams)
    return statistics.median(gap for stream in streams for gap in stream.gaps_ms(start_s, end_s))


def _request(prompt: Sequence[int], max_tokens: int) -> bytes:
    body = json.dumps(
        {
            "model": "smollm2",
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "timings": True,
        }
    ).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _read(reader: asyncio.StreamReader, stream: Stream) -> None:
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status.decode().strip()}: {(await reader.read()).decode()[-500:]}")
    last = b""
    async for line in reader:
        if line.startswith(b"data: {"):
            stream.arrivals_s.append(time.monotonic())
            last = line
    timing = json.loads(last.removeprefix(b"data: ")).get("splitserve")
    if timing is not None:
        stream.timing = timing
        stream.arrivals_s.pop()  # the part that carries the timings, not text
