"""The processes that hold the rest of a replica, as the one that plans its steps sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cluster.rank_facts import RankFacts
from engine.contract.messages import Frame
from ranks.line import RankLine


class OtherRanks(RankLine, Protocol):
    """A group without its conductor."""

    @property
    def facts(self) -> list[RankFacts]:
        """Of every rank, the conductor's first."""

    def on_wait(self, tell: Callable[[], None]) -> None:
        """From now on `tell` is called, some times a second, while the engine's thread waits for
        ranks that live: by another thread, which watches them."""

    def check(self) -> None:
        """See GroupTurn."""

    def close(self) -> None:
        """Ends them all and waits for it. Idempotent."""


class GroupTurn(Protocol):
    """What a turn of the engine's loop does for a replica in several processes."""

    def check(self) -> None:
        """Once in every turn; at once. Raises RankLost when one of the others has ended or stands
        still: the engine ends, and the group with it."""

    def enrich(self, frame: Frame) -> None:
        """Completes every frame: how the ranks keep pace, with the engine's load, and how even the
        load of their experts is, when that has changed."""

    def idle_turn(self) -> None:
        """In every turn that has nothing to compute. Raises RankLost."""
