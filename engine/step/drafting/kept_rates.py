"""How often the next token of a model's draft is kept, when those before it were.

A sequence's own rates begin as those of all sequences. Old trials fade; so do all, slowly, while a
sequence is not drafted for: a drafter that was left out for being wrong is tried again, by and by.
"""

from __future__ import annotations

from engine.step.drafting.draft import MAX_DRAFT_TOKENS

_PRIOR, _PRIOR_TRIALS = 0.85, 10.0
"""Of a good draft for its model; what is seen replaces it soon. At 0.7 nothing was ever tried with
sixteen streams, and what a try may cost is bounded (draft_account.py)."""
_FADE, _SHARED_FADE, _IDLE_FADE = 0.95, 0.99, 0.995
_OWN_PRIOR_TRIALS = 4.0
_MOST = 0.98


class SharedKeptRates:
    """Of all sequences of an engine."""

    __slots__ = ("_kept", "_trials", "era")

    def __init__(self) -> None:
        self._kept = self._trials = 0.0
        self.era = 0
        """What a sequence saw in an older one is forgotten."""

    @property
    def rate(self) -> float:
        """Of tokens kept."""
        return (self._kept + _PRIOR * _PRIOR_TRIALS) / (self._trials + _PRIOR_TRIALS)

    def note(self, num_tried: int, num_kept: int) -> None:
        """Of one draft: tokens whose truth is known."""
        fade = _SHARED_FADE**num_tried
        self._trials = fade * self._trials + num_tried
        self._kept = fade * self._kept + num_kept

    def fade(self) -> None:
        """A step without a draft of anybody."""
        self._trials *= _IDLE_FADE
        self._kept *= _IDLE_FADE

    def begin_anew(self) -> None:
        """Every sequence is as all are, from now on."""
        self.era += 1


class OwnKeptRates:
    """Of one sequence."""

    __slots__ = ("_era", "_kept", "_shared", "_trials")

    def __init__(self, shared: SharedKeptRates) -> None:
        self._shared, self._era = shared, shared.era
        self._kept = self._trials = 0.0

    def note(self, num_tried: int, num_kept: int) -> None:
        """Of its last draft, up to the first token that was wrong: `num_tried` is one more than
        `num_kept` then."""
        fade = _FADE**num_tried
        self._trials = fade * self._trials + num_tried
        self._kept = fade * self._kept + num_kept
        self._shared.note(num_tried, num_kept)

    def fade(self) -> None:
        """A step without a draft of it."""
        if self._era != self._shared.era:
            self._era = self._shared.era
            self._kept = self._trials = 0.0
        self._trials *= _IDLE_FADE
        self._kept *= _IDLE_FADE

    @property
    def rate(self) -> float:
        """Of tokens kept, as expected of the next; never certain."""
        kept = self._kept + _OWN_PRIOR_TRIALS * self._shared.rate
        return min(_MOST, kept / (self._trials + _OWN_PRIOR_TRIALS))

    def chances(self, most: int, least: float) -> list[float]:
        """Of each token of a draft of at most `most`, that it and all before it are kept; not those
        under `least`."""
        rate, chance, found = self.rate, 1.0, list[float]()
        for _ in range(min(most, MAX_DRAFT_TOKENS)):
            chance *= rate
            if chance < least:
                break
            found.append(chance)
        return found
