"""A worker without an engine that speaks OpenAI's HTTP: what a front that knows no gRPC routes to.

Run as `python -m benchmarks.fronts.http_worker PORT STEP_S`. As benchmarks/mock_worker.py: one
token is answered at once, more are a stream that gets one every STEP_S, all streams in the same
turn. A chunk has as many bytes as one of the router's.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import cast

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_SAYS = {"id": "cmpl-0123456789abcdef0123456789abcdef", "object": "text_completion", "created": 1}
_SAYS |= {"model": "smollm2", "system_fingerprint": "fp_0123456789abcdef"}
_CHOICE = {"index": 0, "text": " a", "logprobs": None, "finish_reason": None}
_EVENT = b"data: " + json.dumps({**_SAYS, "choices": [_CHOICE]}).encode() + b"\n\n"
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MODEL = {"model_path": "smollm2", "served_model_name": "smollm2", "data": [{"id": "smollm2"}]}

_running: dict[asyncio.Transport, int] = {}
"""Tokens that each stream is still to get."""


class Connection(asyncio.Protocol):
    """One request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:

        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._data = b""

    def connection_lost(self, exc: Exception | None) -> None:
        _running.pop(self._transport, None)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not found or len(rest) < size:
            return
        body, self._data = rest[:size], rest[size:]
        self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if not head.startswith(b"POST"):
            self._whole(json.dumps(_MODEL).encode())
            return
        asked = json.loads(body)
        if asked.get("stream"):
            self._transport.write(_STREAM)
            _running[self._transport] = asked["max_tokens"]
        else:
            self._whole(json.dumps({**_SAYS, "choices": [_CHOICE], "usage": None}).encode())

    def _whole(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


async def _step(step_s: float) -> None:
    while True:
        await asyncio.sleep(step_s)
        for transport, left in list(_running.items()):
            if left > 1:
                _running[transport] = left - 1
                transport.write(_CHUNK)
            else:
                del _running[transport]
                transport.write(_CHUNK + _END)


async def _serve(port: int, step_s: float) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(Connection, "127.0.0.1", port, backlog=4096)
    await _step(step_s)


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
