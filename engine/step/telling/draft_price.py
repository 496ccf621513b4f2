"""What a row of a draft adds to a step of decodes, as measured: for how many are worth it.

Least squares through nothing; older samples fade. Rows that are found too dear are not verified,
and so not measured any more: while there are only plain steps the price goes back to what is
expected of it, and is tried again.
"""

from __future__ import annotations

_DECAY = 0.98
"""Of a sample's weight with each newer one."""
_SURPRISE = 2.0
"""A row that took longer than so many times the expected counts as that: the step lost its core."""
_FORGET = 0.005
"""Of the difference to what is expected, with each plain step: half of it in 140 steps."""
_OF_ONE, _OF_EACH = 0.1, 0.55
"""A row's price is expected to be that part of a step of one decode, or of what each of several
decodes takes, whichever is less. SmolLM2 on two quiet cores: 0.2 to 0.27 ms, of 2.5 and of 0.48."""


class DraftPrice:
    """Milliseconds of a row at no context."""

    __slots__ = ("_expected_ms", "_num", "_took")

    def __init__(self) -> None:
        self._expected_ms = self._num = self._took = 0.0

    @property
    def ms(self) -> float:
        """As expected before the first sample; 0 before the first plain step."""
        return self._took / self._num if self._num else self._expected_ms

    def add(self, weight: float, added_ms: float) -> None:
        """A step whose rows of drafts weighed so much took so much longer than one without."""
        added_ms = min(added_ms, _SURPRISE * self.ms * weight)
        self._num = _DECAY * self._num + weight * weight
        self._took = _DECAY * self._took + weight * added_ms

    def note_plain(self, num_decodes: int, plain_ms: float, one_ms: float) -> None:
        """A step of so many decodes without drafts, which take `plain_ms`, and one alone
        `one_ms`."""
        self._expected_ms = min(_OF_ONE * one_ms, _OF_EACH * plain_ms / num_decodes)
        self._took += _FORGET * (self._expected_ms * self._num - self._took)
