"""A large body that is refused is gone with its request, before any collector of cycles comes."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.router.front_fakes import running_front, says, small_limits
from tests.router.memory import traced

NUM_BYTES = 4 << 20
TEXT = "x" * NUM_BYTES
TOO_LONG = json.dumps({"prompt": TEXT}).encode()
NOT_JSON = b'{"prompt": "' + TEXT.encode()
UNKNOWN = json.dumps({"prompt": "Hi", "surprise": TEXT}).encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", TOO_LONG),
        ("/v1/completions", NOT_JSON),
        ("/v1/completions", UNKNOWN),
        ("/v1/chat/completions", TOO_LONG),
        ("/tokenize", TOO_LONG),
    ],
)
async def test_a_refused_body_is_gone_before_any_collector_comes(
    path: str, body: bytes, no_collector: None
) -> None:
    limits = small_limits(max_body_bytes=2 * NUM_BYTES)
    async with running_front(says("ok"), limits) as front:
        with traced() as held_bytes:
            for _ in range(3):
                assert (await status_of(front.port, path, body)) in (400, 413)
            assert held_bytes() < NUM_BYTES


async def status_of(port: int, path: str, body: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(f"{head}{kind}".encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split()[1])
