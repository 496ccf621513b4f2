"""What routers tell each other goes over the store in one round trip, many times a second.

    every TICK_S: all topics ask -> one round trip -> each hears its replies
                                       |- no store: each hears that, and goes on by what it knows
                                       |- one is refused: that one hears that there is no store
                                       '- one fails over what it hears: so does that one

No request ever waits for it: what is told was noted when it happened, and what was heard is looked
at where it lies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from cluster.deadline import Sleep
from cluster.logs import get_logger
from router.store.errors import StoreAway
from router.store.link import StoreCommand, StoreReply
from router.store.names import StoreNames
from router.store.topics import StoreTopic

TICK_S = 0.05
PATIENCE_S = 0.05
"""For one round trip: nobody waits for it, but the next tick."""
_log = get_logger("router.sharing")


class Store(Protocol):
    """What is needed of `router.store.shared_store.SharedStore`."""

    names: StoreNames

    @property
    def is_there(self) -> bool:
        """As far as is known."""
        ...

    async def ask(
        self,
        *commands: StoreCommand,
        topic: StoreTopic = StoreTopic.OTHER,
        within_s: float | None = None,
    ) -> list[StoreReply]:
        """A reply for each command; calls of one turn of the loop go out together. Raises
        StoreAway."""
        ...


class Topic(Protocol):
    """One thing that routers talk about. From the event loop, one tick after the other."""

    name: StoreTopic

    def ask(self) -> Sequence[StoreCommand]:
        """Commands of this tick."""
        ...

    async def heard(self, replies: Sequence[StoreReply]) -> None:
        """One for each of those commands; replies of another form than Redis sends may raise."""
        ...

    def unheard(self, *, may_be_done: bool) -> None:
        """The store is away, late, or refuses it. `may_be_done`: what was asked, or part of it;
        else it was not sent, or nothing of it is done."""
        ...

    def goodbye(self) -> Sequence[StoreCommand]:
        """This router ends."""
        ...


class RouterTalk:
    """Of one router. `run` belongs to the process; `close` after it is cancelled."""

    def __init__(self, store: Store, topics: Sequence[Topic], sleep: Sleep) -> None:
        self._store = store
        self._topics = topics
        self._sleep = sleep
        self._failed: set[StoreTopic] = set()
        """Of which the log has heard."""

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self.tick()
            await self._sleep(TICK_S)

    async def tick(self) -> None:
        """Once around."""
        async with asyncio.TaskGroup() as together:
            for topic in self._topics:
                together.create_task(self._told(topic))

    async def close(self) -> None:
        """Says goodbye, where the store is there."""
        await asyncio.gather(*map(self._farewell, self._topics))

    async def _told(self, topic: Topic) -> None:
        """Whatever stands in the store, the others are told."""
        try:
            await self._talked_about(topic)
        except Exception:
            if topic.name not in self._failed:
                self._failed.add(topic.name)
                _log.exception("routers cannot talk about this", topic=topic.name)
            topic.unheard(may_be_done=True)

    async def _talked_about(self, topic: Topic) -> None:
        if not (commands := topic.ask()):
            await topic.heard([])
            return
        try:
            replies = await self._store.ask(*commands, topic=topic.name, within_s=PATIENCE_S)
        except StoreAway as away:
            topic.unheard(may_be_done=away.may_be_done)
        else:
            await topic.heard(replies)

    async def _farewell(self, topic: Topic) -> None:
        if commands := topic.goodbye():
            with contextlib.suppress(StoreAway):
                await self._store.ask(*commands, topic=topic.name, within_s=PATIENCE_S)
