"""The part of a worker's Prometheus page on guesses of coming tokens."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter

from engine.contract.draft_numbers import DraftNumbers


class DraftMetrics:
    """Counters of numbers that an engine has counted itself. Where nothing is guessed there is
    nothing to say."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._last = DraftNumbers()
        self._tokens = Counter(
            "splitserve_worker_draft_tokens",
            "Tokens guessed and verified, by their position in the draft (from 1), and whether "
            "they were right: kept or dropped.",
            ["position", "outcome"],
            registry=registry,
        )
        self._steps = Counter(
            "splitserve_worker_draft_steps",
            "Steps with drafts, counted for each sequence in them.",
            registry=registry,
        )
        self._given = Counter(
            "splitserve_worker_draft_step_tokens",
            "Tokens that those steps gave: over the steps, what a step gives a sequence.",
            registry=registry,
        )

    def take(self, numbers: DraftNumbers) -> None:
        """The engine's latest, which never fall."""
        last, self._last = self._last, numbers
        kept, tried = _grown(numbers.kept, last.kept), _grown(numbers.tried, last.tried)
        for place, (num_kept, num_tried) in enumerate(zip(kept, tried, strict=True), 1):
            if num_tried:
                self._tokens.labels(str(place), "kept").inc(num_kept)
                self._tokens.labels(str(place), "dropped").inc(max(0, num_tried - num_kept))
        self._steps.inc(max(0, numbers.num_steps - last.num_steps))
        self._given.inc(max(0, numbers.num_tokens - last.num_tokens))


def _grown(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """By how much each has; counts of nobody are zero."""
    known = [*before, *[0] * (len(now) - len(before))]
    return [max(0, count - old) for count, old in zip(now, known, strict=False)]
