"""Clients that send slowly, read slowly, leave early, or do not speak HTTP."""

from __future__ import annotations

import asyncio
import json
import socket

import httpx
import pytest

from tests.router.front_fakes import (
    Front,
    hangs,
    running_front,
    small_limits,
    talks_forever,
    until,
)

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def post(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    return HEAD + f"content-length: {len(data)}\r\n\r\n".encode() + data


async def sent(front: Front, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def answer_to(front: Front, data: bytes) -> bytes:
    """Everything until the server closes."""
    reader, writer = await sent(front, data)
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def answer_or_reset(front: Front, data: bytes) -> bytes:
    """As `answer_to`; a connection that is reset gave no answer."""
    try:
        return await answer_to(front, data)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_request(stream: bool) -> None:
    async with running_front(talks_forever()) as front:
        reader, writer = await sent(front, post({"prompt": "Hi", "stream": stream}))
        await until(lambda: len(front.source.requests) == 1, "the request is dispatched")
        if stream:
            assert await reader.read(1)
        writer.close()
        await until(lambda: front.source.num_closed == 1, "the request is cancelled")
        await until(lambda: front.in_flight.num_admitted == 0, "nothing is in flight")


async def test_a_client_that_leaves_before_the_first_token_cancels_too() -> None:
    async with running_front(hangs()) as front:
        _reader, writer = await sent(front, post({"prompt": ["a", "b"], "stream": True}))
        await until(lambda: len(front.source.requests) == 2, "both prompts are dispatched")
        writer.close()
        await until(lambda: front.source.num_closed == 2, "both are cancelled")


async def test_a_slow_head_is_answered_408_and_closed() -> None:
    async with running_front(limits=small_limits(request_timeout_s=0.2)) as front:
        answer = await answer_to(front, HEAD)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in answer


async def test_a_slow_body_is_answered_408_and_closed() -> None:
    async with running_front(limits=small_limits(request_timeout_s=0.2)) as front:
        answer = await answer_to(front, HEAD + b"content-length: 50\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert front.in_flight.num_admitted == 0


async def test_a_silent_connection_is_closed() -> None:
    async with running_front(limits=small_limits(request_timeout_s=0.2)) as front:
        assert await answer_to(front, b"") == b""


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000,
        b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nZZZ\r\n",
    ],
    ids=range(8),
)
async def test_what_is_not_http_or_too_large_is_refused_in_json(front: Front, data: bytes) -> None:
    answer = await answer_to(front, data)
    assert answer.split(b" ")[1] in (b"400", b"408", b"431")
    assert b'{"error":{"message":' in answer


async def test_a_reader_that_never_reads_is_dropped_and_others_are_served() -> None:
    limits = small_limits(reader_timeout_s=0.3)
    async with running_front(talks_forever("x" * 500), limits=limits) as front:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(raw, ("127.0.0.1", front.port))
        await loop.sock_sendall(raw, post({"prompt": "Hi", "stream": True}))
        await until(lambda: len(front.source.requests) == 1, "the request is dispatched")
        async with httpx.AsyncClient(base_url=front.url) as other:
            assert (await other.get("/health")).status_code == 200
        await until(lambda: front.source.num_closed == 1, "the slow reader is dropped", 10.0)
        raw.close()


async def test_over_the_connection_limit_only_operators_are_served() -> None:
    limits = small_limits(max_connections=8, reserved_connections=8)
    async with running_front(limits=limits) as front:
        idle = [await sent(front, b"") for _ in range(6)]  # three quarters: the share of an address
        answer = await answer_to(front, post({"prompt": "Hi"}))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after" in answer
        close = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        assert (await answer_to(front, close)).startswith(b"HTTP/1.1 200 ")
        idle += [await sent(front, b"") for _ in range(6)]
        await until(lambda: front.server.num_connections == 12, "the reserve has its share, too")
        assert await answer_or_reset(front, close) == b""
        for _reader, writer in idle:
            writer.close()


async def test_a_stream_has_the_headers_that_keep_proxies_from_buffering(front: Front) -> None:
    async with (
        httpx.AsyncClient(base_url=front.url) as client,
        client.stream("POST", "/v1/completions", json={"prompt": "Hi", "stream": True}) as reply,
    ):
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-cache, no-transform"
        assert reply.headers["x-accel-buffering"] == "no"
        assert reply.headers["x-request-id"]
        lines = [line async for line in reply.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in lines)
