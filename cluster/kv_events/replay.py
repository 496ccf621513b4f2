"""Asking a worker for past events, or for a snapshot."""

from __future__ import annotations

import asyncio

import zmq
import zmq.asyncio

from cluster.kv_events.keys import ReaderKeys
from cluster.kv_events.wire import END, MAX_MESSAGE_BYTES, decode_sequence
from cluster.process.loop_share import LoopShare

ANSWER_TIMEOUT_S = 5.0
"""For the next message of an answer; a snapshot waits for an engine step."""
MAX_ANSWER_MESSAGES = 100_000

ReplayMessage = tuple[int, bytes]
"""Sequence number and payload."""


async def ask(
    context: zmq.asyncio.Context,
    address: str,
    start: bytes,
    share: LoopShare,
    keys: ReaderKeys | None = None,
) -> list[ReplayMessage]:
    """The answer to one request, without its END; `start` as in `cluster.kv_events.wire`.

    Raises TimeoutError when nobody answers and ValueError for an answer that is none.
    """
    socket: zmq.asyncio.Socket = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, MAX_ANSWER_MESSAGES)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        if keys is not None:
            keys.put_on(socket)
        socket.connect(address)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):  # who was refused already has nowhere to send
            await socket.send_multipart((b"", start))
        return await _read_answer(socket, share)
    finally:
        socket.close(linger=0)


async def _read_answer(socket: zmq.asyncio.Socket, share: LoopShare) -> list[ReplayMessage]:
    answer: list[ReplayMessage] = []
    while len(answer) < MAX_ANSWER_MESSAGES:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            frames = await socket.recv_multipart()
        if len(frames) != 4:
            raise ValueError(f"a replay answer has {len(frames)} frames, not 4")
        if frames[2] == END:
            return answer
        answer.append((decode_sequence(frames[2]), frames[3]))
        await share.breathe()  # a receive that need not wait does not let others run
    raise ValueError(f"a replay answer is longer than {MAX_ANSWER_MESSAGES} messages")
