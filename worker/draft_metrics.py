"""The part of a worker's Prometheus page on guesses of coming tokens."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from engine.contract.draft_numbers import DrafterKind, DraftNumbers, DraftPlaces


class DraftMetrics:
    """Numbers that an engine has counted itself. Where nothing is guessed there is nothing to
    say."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._last = DraftNumbers()
        self._tokens = Counter(
            "splitserve_worker_draft_tokens",
            "Tokens drafted and verified, by what they come from (ngram, model, heads; grammar: "
            "no guess, but the only one that an answer's grammar allows), their position in the "
            "draft (from 1), and whether they were right: kept or dropped.",
            ["drafter", "position", "outcome"],
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
        self._took = Counter(
            "splitserve_worker_draft_step_seconds",
            "Time of those steps, and of all guessing.",
            registry=registry,
        )
        self._plain = Counter(
            "splitserve_worker_draft_plain_seconds",
            "Time that steps without drafts would have taken for those tokens, by what such steps "
            "take here: over the time of those steps, the gain, 1 without drafts.",
            registry=registry,
        )
        self._guessing = Counter(
            "splitserve_worker_draft_guess_seconds",
            "Time of steps in which a draft model or a head read and guessed.",
            registry=registry,
        )
        self._out = Gauge(
            "splitserve_worker_drafters_out",
            "1: a draft model or a head has failed so often that it guesses no more until the "
            "worker starts anew; its log has the causes.",
            ["drafter"],
            registry=registry,
        )

    def take(self, numbers: DraftNumbers) -> None:
        """The engine's latest, which never fall."""
        last, self._last = self._last, numbers
        for drafter, places in numbers.by_drafter.items():
            self._take_places(drafter, places, last.by_drafter.get(drafter, DraftPlaces()))
        self._steps.inc(max(0, numbers.num_steps - last.num_steps))
        self._given.inc(max(0, numbers.num_tokens - last.num_tokens))
        self._took.inc(max(0.0, numbers.took_s - last.took_s))
        self._plain.inc(max(0.0, numbers.plain_s - last.plain_s))
        self._guessing.inc(max(0.0, numbers.guess_s - last.guess_s))
        for drafter in numbers.out:
            self._out.labels(drafter.value).set(1)

    def _take_places(self, drafter: DrafterKind, now: DraftPlaces, before: DraftPlaces) -> None:
        kept, tried = _grown(now.kept, before.kept), _grown(now.tried, before.tried)
        for place, (num_kept, num_tried) in enumerate(zip(kept, tried, strict=True), 1):
            if num_tried:
                labels = (drafter.value, str(place))
                self._tokens.labels(*labels, "kept").inc(num_kept)
                self._tokens.labels(*labels, "dropped").inc(max(0, num_tried - num_kept))


def _grown(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """By how much each has; counts of nobody are zero."""
    known = [*before, *[0] * (len(now) - len(before))]
    return [max(0, count - old) for count, old in zip(now, known, strict=False)]
