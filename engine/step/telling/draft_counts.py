"""What became of all drafts, by position: for operators."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.draft_numbers import DrafterKind, DraftNumbers, DraftPlaces
from engine.step.batch.step_work import Span
from engine.step.drafting.draft import MAX_DRAFT_TOKENS


class DraftCounts:
    """Since the engine's start."""

    def __init__(self) -> None:
        self._places: dict[DrafterKind, DraftPlaces] = {}
        self._num_steps = self._num_tokens = 0
        self._plain_s = self._took_s = self._guess_s = 0.0
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

    def note_time(self, plain_ms: float, took_ms: float) -> None:
        """Of it: what its tokens would have taken in plain steps, and what it took but guessing."""
        self._plain_s += plain_ms / 1e3
        self._took_s += took_ms / 1e3

    def note_guessing(self, took_s: float) -> None:
        """Seconds of a step."""
        self._guess_s += took_s
        self._took_s += took_s
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
            plain_s=self._plain_s,
            took_s=self._took_s,
            guess_s=self._guess_s,
            out=self._out,
        )


def _no_places() -> DraftPlaces:
    return DraftPlaces(tried=[0] * MAX_DRAFT_TOKENS, kept=[0] * MAX_DRAFT_TOKENS)
