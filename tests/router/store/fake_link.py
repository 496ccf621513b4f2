"""A store's connection that answers as a test says, after as long as it says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from router.store.errors import LinkLost
from router.store.link import StoreCommand, StoreRefusal, StoreReply

Reply = Callable[[StoreCommand], StoreReply | StoreRefusal]

INFO = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"


def knows_all(command: StoreCommand) -> StoreReply:
    """As a Redis of today."""
    if command[0] == "INFO":
        return INFO.encode()
    return [[b"known"] for _ in command[2:]] if command[0] == "COMMAND" else b"OK"


class FakeLink:
    """A StoreLink."""

    def __init__(self, reply: Reply = knows_all) -> None:
        self.reply = reply
        self.took_s = 0.0
        """A round trip, on the loop's own clock."""
        self.num_exchanges = 0
        self._closed = asyncio.Event()

    async def connect(self) -> None:
        """Always there."""
        self._closed.clear()

    async def exchange(self, commands: Sequence[StoreCommand]) -> list[StoreReply | StoreRefusal]:
        self.num_exchanges += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.took_s):
                await self._closed.wait()
                raise LinkLost("closed")
        return [self.reply(command) for command in commands]

    def close(self) -> None:
        """Whoever waits for an answer has none."""
        self._closed.set()
