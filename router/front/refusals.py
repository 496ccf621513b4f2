"""What both doors say in the same words: to whom they cannot serve, and of whom does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from cluster.errors import InternalError, NotReady
from router.front.reader_patience import unread


def internal_error() -> InternalError:
    """For a bug of ours, whose trace is in the log and in no answer."""
    return InternalError("the router failed on this request; its log says why")


def crowded(what: str) -> NotReady:
    """Too many of `what`, such as connections, are there already."""
    return NotReady(f"too many {what} at once; close some or try again later")


async def within_reader_timeout(write: Awaitable[None], timeout_s: float) -> None:
    """One write to a client. Raises Cancelled when it does not read for so long."""
    try:
        async with asyncio.timeout(timeout_s):
            await write
    except TimeoutError:
        raise unread(timeout_s) from None
