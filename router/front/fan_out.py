"""Several prompts of one request, run at once and merged into one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from cluster.process.background import cancel, completed
from cluster.process.loop_share import LoopShare
from router.front.events import TextEvent

MAX_BUFFERED_EVENTS = 64
"""Over all prompts; a full buffer makes the prompts wait for the reader."""

IndexedEvent = tuple[int, TextEvent]


async def merge(
    streams: Sequence[AsyncGenerator[TextEvent, None]], share: LoopShare
) -> AsyncGenerator[IndexedEvent, None]:
    """(index of the prompt, event) in the order of arrival. To begin a prompt is work, so they
    begin within their share of the loop's turns.

    The first failure ends all; closing the merged stream closes every one of them.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for event in only:
                yield 0, event
        return
    queue: asyncio.Queue[IndexedEvent | BaseException | None] = asyncio.Queue(MAX_BUFFERED_EVENTS)
    tasks = [asyncio.create_task(_pump(each, queue, share)) for each in enumerate(streams)]
    try:
        num_open = len(tasks)
        while num_open:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:
        await cancel(tasks)


async def _pump(
    numbered: tuple[int, AsyncGenerator[TextEvent, None]],
    queue: asyncio.Queue[IndexedEvent | BaseException | None],
    share: LoopShare,
) -> None:
    """Puts every event, then None, or the error that ended the stream."""
    try:
        await completed(_relay(numbered, queue, share))
    except Exception as error:  # handed to the reader, who raises it
        await queue.put(error)
    else:
        await queue.put(None)


async def _relay(
    numbered: tuple[int, AsyncGenerator[TextEvent, None]],
    queue: asyncio.Queue[IndexedEvent | BaseException | None],
    share: LoopShare,
) -> None:
    index, stream = numbered
    async with aclosing(stream) as events:
        await share.breathe()
        async for event in events:
            await queue.put((index, event))
