"""Calls that ask in a stream, which are reflection's: short questions, each with its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from cluster.errors import SlowRequest
from router.grpc_front.message_intake import Parse, fitting, parsed
from router.grpc_front.message_reads import MessageReads
from router.grpc_front.public_port import DIALOGUE_MESSAGE_BYTES


async def talk(handler: Any, context: Any, reads: MessageReads, timeout_s: float) -> None:
    """Runs the method to its end. Raises SlowRequest after so long, and RequestTooLarge and
    InvalidRequest for a question."""
    try:
        async with (
            asyncio.timeout(timeout_s),
            aclosing(_questions(context, reads, handler.request_deserializer)) as questions,
            aclosing(handler.stream_stream(questions, context)) as answers,
        ):
            async for answer in answers:
                await context.write(answer)
    except TimeoutError:
        raise SlowRequest("the dialogue took too long; ask again") from None


async def _questions(context: Any, reads: MessageReads, parse: Parse) -> AsyncGenerator[Any, None]:
    while (raw := await reads.message(context)) is not grpc.aio.EOF:
        yield parsed(fitting(raw, DIALOGUE_MESSAGE_BYTES), parse)
