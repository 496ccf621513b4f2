"""What became of drafts: of one step, for what it cost; and of all, by position, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.contract.draft_numbers import DrafterKind, DraftNumbers, DraftPlaces
from engine.step.drafting.drafter import MAX_DRAFT_TOKENS


@dataclass(slots=True)
class VerifiedRows:
    """Of one step."""

    num_decodes: int = 0
    """Sequences in it."""
    num_tokens: int = 0
    """That it gave to all of them."""
    drafts: list[tuple[int, int]] = field(default_factory=list)
    """(tokens, context) of each."""


class DraftCounts:
    """Since the engine's start."""

    def __init__(self) -> None:
        self._places: dict[DrafterKind, DraftPlaces] = {}
        self._num_steps = self._num_tokens = 0
        self._guess_s = 0.0
        self._has_news = False

    def note(self, drafter: DrafterKind, num_tried: int, num_kept: int) -> None:
        """A draft of `num_tried` tokens, of which the first `num_kept` were right."""
        places = self._places.setdefault(drafter, _no_places())
        for position in range(num_tried):
            places.tried[position] += 1
            places.kept[position] += position < num_kept
        self._has_news = True

    def note_step(self, num_tokens: Sequence[int]) -> None:
        """A step with drafts gave so many tokens to each of its sequences."""
        self._num_steps += len(num_tokens)
        self._num_tokens += sum(num_tokens)

    def note_guessing(self, took_s: float) -> None:
        """Seconds of a step."""
        self._guess_s += took_s
        self._has_news = self._has_news or took_s > 0.0

    def take(self) -> DraftNumbers | None:
        """When they have changed since."""
        if not self._has_news:
            return None
        self._has_news = False
        return DraftNumbers(
            by_drafter={
                drafter: DraftPlaces(tried=list(places.tried), kept=list(places.kept))
                for drafter, places in self._places.items()
            },
            num_steps=self._num_steps,
            num_tokens=self._num_tokens,
            guess_s=self._guess_s,
        )


def _no_places() -> DraftPlaces:
    return DraftPlaces(tried=[0] * MAX_DRAFT_TOKENS, kept=[0] * MAX_DRAFT_TOKENS)
