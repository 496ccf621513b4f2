"""What became of drafts: of one step, for what it cost; and of all, by position, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.contract.draft_numbers import DrafterKind, DraftNumbers, DraftPlaces
from engine.step.batch.step_work import Span
from engine.step.drafting.draft import MAX_DRAFT_TOKENS
from engine.step.planning.step_cost import draft_weight


@dataclass(slots=True)
class VerifiedDraft:
    """Of one sequence in one step."""

    drafter: DrafterKind
    num_tokens: int
    context: int
    """Of the sequence, before the step."""
    num_kept: int = 0

    @classmethod
    def of(cls, span: Span) -> VerifiedDraft:
        """Of a span with a draft, before its tokens are given."""
        assert span.drafter is not None, "a draft is somebody's"
        return cls(span.drafter, len(span.draft), span.sequence.num_computed)

    @property
    def weight(self) -> float:
        """Of its rows, in rows at no context."""
        return self.num_tokens * draft_weight(self.context)


@dataclass(slots=True)
class VerifiedRows:
    """Of one step."""

    num_decodes: int = 0
    """Sequences in it."""
    num_tokens: int = 0
    """That it gave to all of them."""
    drafts: list[VerifiedDraft] = field(default_factory=list)

    @property
    def weight(self) -> float:
        """Of all rows of drafts."""
        return sum(draft.weight for draft in self.drafts)


class DraftCounts:
    """Since the engine's start."""

    def __init__(self) -> None:
        self._places: dict[DrafterKind, DraftPlaces] = {}
        self._num_steps = self._num_tokens = 0
        self._guess_s = 0.0
        self._out: list[DrafterKind] = []
        self._has_news = False

    def note(self, span: Span, num_kept: int) -> None:
        """Of its draft the first `num_kept` tokens were right. Those that a grammar forces tell
        nothing of whosever draft they are in."""
        assert span.drafter is not None, "a draft is somebody's"
        for position in range(len(span.draft)):
            kind = DrafterKind.GRAMMAR if position < span.num_forced else span.drafter
            places = self._places.setdefault(kind, _no_places())
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

    def note_out(self, kinds: list[DrafterKind]) -> None:
        """These drafters have failed too often."""
        if kinds != self._out:
            self._out, self._has_news = kinds, True

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
            out=self._out,
        )


def _no_places() -> DraftPlaces:
    return DraftPlaces(tried=[0] * MAX_DRAFT_TOKENS, kept=[0] * MAX_DRAFT_TOKENS)
