"""The processes that hold the rest of a replica, as the one that plans its steps sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

from cluster.rank_facts import RankFacts
from engine.contract.messages import Frame


class RankLine(Protocol):
    """A way to the extensions of the other ranks. From the engine's one thread."""

    @property
    def greetings(self) -> Mapping[int, bytes]:
        """What each rank's extension said as it began, by rank; opaque here."""

    def tell(self, body: bytes) -> None:
        """To all of them, in order with the steps. Raises RankLost."""

    def gather(self, rows: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """Own rows [num_rows, width] and those of every other rank, side by side in order; `widths`
        are the ranks' columns. Between two steps, where the extensions of all others call theirs
        for the same word. Raises RankLost."""

    def hear(self) -> list[tuple[int, bytes]]:
        """What has come since the last call: (rank, body), in order for each rank. Never waits."""


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
