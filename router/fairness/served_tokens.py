"""The counters of all classes, as one Topic of what routers tell each other (see
router/sharing/talk.py): one round trip for all, many times a second, and none for a request.

    `born` differs: the store was emptied, and is told what is known here
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from router.fairness.shared_counters import LIFE_S, SharedCounters
from router.store.link import StoreCommand, StoreReply
from router.store.names import StoreNames
from router.store.topics import StoreTopic


class ServedTokens:
    """A Topic, of one router."""

    name = StoreTopic.SHARES

    def __init__(self, names: StoreNames, num_classes: int, is_there: Callable[[], bool]) -> None:
        """`is_there`: whether the store is, as far as is known; what nobody would hear is kept."""
        self._is_there = is_there
        self._classes = [
            SharedCounters(names.of_fleet("served", str(level))) for level in range(num_classes)
        ]
        self._born_key = names.of_fleet("served", "born")
        self._own_word = secrets.token_hex(8)
        self._born: bytes | None = None
        """Which filling of the store has heard what is known here."""
        self._told: list[tuple[SharedCounters, list[StoreCommand]]] = []

    def of_class(self, level: int) -> SharedCounters:
        """Counters of one class."""
        return self._classes[level]

    def ask(self) -> Sequence[StoreCommand]:
        """See Topic. Nothing where no tenant is known."""
        self._told = []
        if self._is_there():
            told = ((each, each.take_commands()) for each in self._classes)
            self._told = [(each, commands) for each, commands in told if commands]
        commands = [command for _, some in self._told for command in some]
        return [*self._of_birth, *commands] if commands else []

    async def heard(self, replies: Sequence[StoreReply]) -> None:
        """See Topic."""
        if not replies:
            return
        left = iter(replies)
        _, born, _ = (next(left) for _ in self._of_birth)
        self._look(born)
        for counters, commands in self._told:
            counters.hear(commands, [next(left) for _ in commands])

    def unheard(self, *, may_be_done: bool) -> None:
        """See Topic. What was on its way may have been counted, and is not told again: the store is
        lifted to what is known here, where it has not."""
        for counters, _ in self._told:
            if may_be_done:
                counters.emptied()
            else:
                counters.put_back()

    def goodbye(self) -> Sequence[StoreCommand]:
        """See Topic. What is untold is told."""
        return self.ask()

    @property
    def _of_birth(self) -> list[StoreCommand]:
        life_s = 2 * LIFE_S
        return [
            ("SET", self._born_key, self._own_word, "NX", "EX", life_s),
            ("GET", self._born_key),
            ("EXPIRE", self._born_key, life_s),
        ]

    def _look(self, born: bytes) -> None:
        """Before the counters hear: their replies may be those of a store that knows nothing."""
        before, self._born = self._born, born
        if before is not None and before != born:
            for counters in self._classes:
                counters.emptied()
