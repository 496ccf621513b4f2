"""What large messages leave behind once their calls are over: nothing."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from cluster.process.background import Background, cancel, nothing_needed
from cluster.process.loop_share import LoopShare
from router.grpc_front.message_reads import MessageReads
from tests.router import large_caller
from tests.router.front_fakes import says, small_limits
from tests.router.grpc_front.test_grpc_inference import running_grpc
from tests.router.grpc_front.test_public_server import target_of
from tests.router.memory import allocated_bytes, traced

CHECK = "/grpc.health.v1.Health/Check"
GENERATE = "/splitserve.v1.Inference/Generate"
LEAVE, SYNC = "/test.Reads/Leave", "/test.Reads/Sync"
NUM_BYTES = 8 << 20
ROUNDS = 12
UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@asynccontextmanager
async def leaving_reader() -> AsyncIterator[str]:
    """A server whose method leaves its read, says so, and ends once its peer has."""
    background = Background(nothing_needed)
    reads = MessageReads(background, LoopShare())

    async def leave(_requests: Any, context: Any) -> None:
        reading = asyncio.ensure_future(reads.message(context))
        await asyncio.sleep(0.001)
        await cancel([reading])
        await context.write(b"left")
        await asyncio.Event().wait()

    async def sync(request: bytes, _context: Any) -> bytes:
        return request

    methods = {
        "Leave": grpc.stream_stream_rpc_method_handler(leave),
        "Sync": grpc.unary_unary_rpc_method_handler(sync),
    }
    server = grpc.aio.server(options=UNBOUNDED)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Reads", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
        await background.close()


async def sends_to_who_has_left(channel: grpc.aio.Channel, message: bytes) -> None:
    call = channel.stream_stream(LEAVE)()
    assert await call.read() == b"left"
    await call.write(message)
    assert await channel.unary_unary(SYNC)(b"behind it") == b"behind it"
    call.cancel()


async def test_a_message_that_is_whole_after_its_reader_has_left_is_freed() -> None:
    """gRPC frees nothing of a read that was cancelled (grpc #43360)."""
    message = b"x" * NUM_BYTES
    async with (
        leaving_reader() as target,
        grpc.aio.insecure_channel(target, options=UNBOUNDED) as channel,
    ):
        await sends_to_who_has_left(channel, message)
        gc.collect()
        before = allocated_bytes()
        if before is None:
            pytest.skip("this C library does not tell what it has given out")
        for _ in range(ROUNDS):
            await sends_to_who_has_left(channel, message)
        gc.collect()
        after = allocated_bytes()
    assert after is not None
    assert after - before < ROUNDS * NUM_BYTES / 3


async def crowd(target: str, method: str, field: int) -> str:
    """How their calls ended."""
    words = map(str, (target, method, 4, 3, field, NUM_BYTES))
    caller = await asyncio.create_subprocess_exec(
        sys.executable, large_caller.__file__, *words, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await caller.communicate()
    return told.decode()


async def test_a_refused_message_is_gone_before_any_collector_comes(no_collector: None) -> None:
    async with target_of(max_message_bytes=2 * NUM_BYTES) as target:
        with traced() as held_bytes:
            told = await crowd(target, CHECK, 1)
            assert "RESOURCE_EXHAUSTED" in told
            assert held_bytes() < NUM_BYTES


async def test_a_refused_generation_is_gone_before_any_collector_comes(no_collector: None) -> None:
    limits = small_limits(max_body_bytes=2 * NUM_BYTES)
    async with running_grpc(says("ok"), limits, max_message_bytes=2 * NUM_BYTES) as front:
        with traced() as held_bytes:
            told = await crowd(front.target, GENERATE, 3)
            assert "INVALID_ARGUMENT" in told
            assert held_bytes() < NUM_BYTES
