"""How much of what the index believes of one worker's cache comes true."""

from __future__ import annotations

KEPT_SHARE = 0.9
"""Of what came before, at each comparison: some ten count."""
PRIOR = 3.0
"""So many are taken to have come true beside them: blocks may go while a request is under way, and
prompts of one prefix that arrive together expect what the first has yet to compute."""
ROUNDING_TOKENS = 64
"""A prompt's last block is computed though it is cached, since its last logits are wanted."""
GOOD_SHARE = 0.8
"""Whoever is right so often is believed as it is."""
DOUBTFUL_SHARE = 0.5


class MeanShare:
    """Of the last few values between 0 and 1."""

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum = self._count = PRIOR

    @property
    def value(self) -> float:
        """1 before there are any."""
        return self._sum / self._count

    def add(self, value: float) -> None:
        """One more."""
        self._sum = PRIOR + KEPT_SHARE * (self._sum - PRIOR) + value
        self._count = PRIOR + KEPT_SHARE * (self._count - PRIOR) + 1.0


class HitTrust:
    """Of one worker process, until it is asked for all that it has."""

    __slots__ = ("_came_true", "_was_known")

    def __init__(self) -> None:
        self._came_true = MeanShare()
        self._was_known = MeanShare()

    @property
    def share(self) -> float:
        """What part of a belief may be counted on, from 0 to 1."""
        share = self._came_true.value
        return 1.0 if share >= GOOD_SHARE else share

    @property
    def believes_too_much(self) -> bool:
        """True when much that was expected was not there."""
        return self._came_true.value < DOUBTFUL_SHARE

    @property
    def knows_too_little(self) -> bool:
        """True when much was there that nobody had expected."""
        return self._was_known.value < DOUBTFUL_SHARE

    def compared(self, expected_tokens: int, found_tokens: int) -> None:
        """One prompt that was computed there. Where both are 0 it says nothing."""
        if expected_tokens:
            self._came_true.add(_share(found_tokens, expected_tokens))
        if found_tokens:
            self._was_known.add(_share(expected_tokens, found_tokens))


def _share(tokens: int, of_tokens: int) -> float:
    return min(1.0, (tokens + ROUNDING_TOKENS) / of_tokens)
