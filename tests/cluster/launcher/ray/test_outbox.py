"""What an actor keeps until it is fetched."""

from __future__ import annotations

import asyncio

from cluster.launcher.protocol import ProcessExit
from cluster.launcher.ray.outbox import MAX_WAITING_BYTES, Outbox
from cluster.process.startup import StillAlive


def pipe_with(*chunks: bytes) -> asyncio.StreamReader:
    stream = asyncio.StreamReader()
    for chunk in chunks:
        stream.feed_data(chunk)
    stream.feed_eof()
    return stream


async def test_news_are_taken_in_order_and_once() -> None:
    outbox, ended = Outbox(), ProcessExit(status=3)
    outbox.put(StillAlive())
    await outbox.follow(pipe_with(b"one\n"))
    outbox.put(ended)
    assert await outbox.take() == [StillAlive(), b"one\n", ended]
    assert outbox.take_rest() == []


async def test_who_comes_too_early_waits_for_the_first_piece() -> None:
    outbox = Outbox()
    waiting = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put(StillAlive())
    assert await waiting == [StillAlive()]


async def test_output_that_nobody_fetches_is_lost_and_counted_but_reports_and_the_end_are_not() -> (
    None
):
    outbox, ended = Outbox(), ProcessExit(status=0)
    await outbox.follow(pipe_with(b"x" * (MAX_WAITING_BYTES + 3 * 65536)))
    outbox.put(ended)
    note, *kept, last = await outbox.take()
    assert isinstance(note, bytes) and note.startswith(b"[") and b"bytes of output are lost" in note
    assert sum(len(piece) for piece in kept if isinstance(piece, bytes)) <= MAX_WAITING_BYTES
    assert last == ended
