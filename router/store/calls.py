"""Calls that wait for the store, and those that are under way.

put -> waits -> taken with all others that wait -> answered, once; or failed with all others
          '- given up by whoever put it: it is never sent; sent already, it is heard when it comes
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router.store.errors import StoreAway
from router.store.link import StoreCommand, StoreRefusal, StoreReply

MAX_WAITING = 4096
"""Calls that are not sent yet; one more is answered as if the store were away."""
MAX_TOGETHER = 256
"""Calls that go out together."""

StoreAnswer = asyncio.Future[list[StoreReply | StoreRefusal]]


@dataclass(slots=True, eq=False)
class StoreCall:
    """Commands that go out together, and what comes back."""

    commands: Sequence[StoreCommand]
    answer: StoreAnswer
    """To be awaited behind a shield. Done before it is answered: nobody wants it any more."""
    is_sent: bool = False
    """As far as the connection took it; what is not is never done."""

    def give_up(self, on_late: Callable[[list[StoreReply | StoreRefusal]], None]) -> None:
        """Nobody waits for it any more. `on_late` hears what it came to, where it was sent and is
        answered after all."""
        if not self.is_sent:
            self.answer.cancel()
            return

        def heard(answer: StoreAnswer) -> None:
            if not answer.cancelled() and answer.exception() is None:
                on_late(answer.result())

        self.answer.add_done_callback(heard)


class StoreCalls:
    """Of one connection."""

    def __init__(self) -> None:
        self._waiting: list[StoreCall] = []
        self._under_way: list[StoreCall] = []
        self._has_some = asyncio.Event()

    def put(self, commands: Sequence[StoreCommand]) -> StoreCall:
        """Raises StoreAway where too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            raise StoreAway(f"{MAX_WAITING} calls wait for the shared store")
        answer: StoreAnswer = asyncio.get_running_loop().create_future()
        self._waiting.append(call := StoreCall(commands, answer))
        self._has_some.set()
        return call

    async def take(self, within_s: float) -> list[StoreCommand]:
        """All commands of those that go out now; none after `within_s` without a call."""
        if not self._waiting:
            self._has_some.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._has_some.wait()
        calls, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
        self._under_way = [call for call in calls if not call.answer.done()]
        for call in self._under_way:
            call.is_sent = True
        return [command for call in self._under_way for command in call.commands]

    def answer(self, replies: Sequence[StoreReply | StoreRefusal]) -> None:
        """Those that are under way, in their order."""
        calls, self._under_way = self._under_way, []
        at = 0
        for call in calls:
            end = at + len(call.commands)
            if not call.answer.done():
                call.answer.set_result(list(replies[at:end]))
            at = end

    def fail(self) -> None:
        """All of them: raises StoreAway where they wait."""
        calls = [*self._under_way, *self._waiting]
        self._under_way, self._waiting = [], []
        for call in calls:
            if not call.answer.done():
                gone = StoreAway("the shared store has gone", may_be_done=call.is_sent)
                call.answer.set_exception(gone)
