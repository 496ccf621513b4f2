"""How often the token that followed a run before follows it again, by the length of the run.

A sequence's own rates begin as those of all sequences, and soon are its own: a text that is copied
differs from one that is not. Old trials fade, so that a rate may recover.
"""

from __future__ import annotations

LONGEST = 12
"""Runs of as many tokens, or more, are alike."""
_PRIORS = (0.1, 0.1, 0.4, 0.55, 0.58, 0.75, 0.76, 0.78, 0.78, 0.8, 0.82, 0.84, 0.88)
"""By length, before anything was tried: between those of texts that copy and of chat, in SmolLM2's
answers to the prompts of benchmarks/copying_prompts.py."""
_PRIOR_TRIALS, _SHARED_FADE = 20.0, 0.998
_OWN_PRIOR_TRIALS, _OWN_FADE = 15.0, 0.95
_LONG_RUN = 5
"""From here on runs are long: a sequence has one rate of its own for these, and one for shorter."""
_MOST = 0.98


class SharedRates:
    """Of all sequences of an engine."""

    __slots__ = ("_hits", "_trials")

    def __init__(self) -> None:
        self._hits = [rate * _PRIOR_TRIALS for rate in _PRIORS]
        self._trials = [_PRIOR_TRIALS] * len(_PRIORS)

    def note(self, length: int, is_hit: bool) -> None:
        """The token after a run of that length was the one that had followed it before, or not."""
        self._hits[length] = _SHARED_FADE * self._hits[length] + is_hit
        self._trials[length] = _SHARED_FADE * self._trials[length] + 1.0

    def rate(self, length: int) -> float:
        """Of hits."""
        return self._hits[length] / self._trials[length]


class OwnRates:
    """Of one sequence."""

    __slots__ = ("_hits", "_shared", "_trials")

    def __init__(self, shared: SharedRates) -> None:
        self._shared = shared
        self._hits, self._trials = [0.0, 0.0], [0.0, 0.0]

    def note(self, length: int, is_hit: bool) -> None:
        """See SharedRates; `length` is at most LONGEST."""
        kind = length >= _LONG_RUN
        self._hits[kind] = _OWN_FADE * self._hits[kind] + is_hit
        self._trials[kind] = _OWN_FADE * self._trials[kind] + 1.0
        self._shared.note(length, is_hit)

    def rate(self, length: int) -> float:
        """Of hits, as expected of the next trial; never certain."""
        kind = length >= _LONG_RUN
        prior = _OWN_PRIOR_TRIALS * self._shared.rate(length)
        return min(_MOST, (self._hits[kind] + prior) / (self._trials[kind] + _OWN_PRIOR_TRIALS))
