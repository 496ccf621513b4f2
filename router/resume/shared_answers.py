"""Answers as the routers of a fleet share them: what one has kept, another goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from router.resume.kept_answer import KeptAnswer


class AnswersAway(Exception):
    """What routers share is not there now, or too late."""


@dataclass(frozen=True, slots=True)
class TakenAnswer:
    """As another connection goes on with it."""

    epoch: int
    """From now on: who writes with an earlier one is told that it has lost the answer."""
    head: bytes
    batches: list[bytes]


class SharedAnswers(Protocol):
    """Redis, or in tests several routers' memory. What is not written again is forgotten there
    after the time for which answers are kept."""

    async def write(self, answers: Sequence[KeptAnswer]) -> list[bool]:
        """Their heads, where they are not there yet, and batches from `num_shared` on, which it
        sets. False for each that somebody has taken since. Raises AnswersAway."""

    async def remove(self, forgotten: Mapping[bytes, int]) -> None:
        """Those with these keys, of these epochs or earlier ones: who took one since has it still.
        Raises AnswersAway: then some may be there still."""

    async def head(self, key: bytes) -> bytes | None:
        """Of one that stays whoever's it is. None: there is none. Raises AnswersAway."""

    async def take(self, key: bytes) -> TakenAnswer | None:
        """None: there is none. Raises AnswersAway."""
