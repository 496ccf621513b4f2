"""What drafts add to a step of decodes, as measured: so much for having any, and so much for each
of their rows. For how many are worth it.

Least squares that lean to what is expected; older samples fade. Rows that are found too dear are
not verified, and so not measured any more: while there are only plain steps the samples fade, too,
the price goes back to what is expected of it, and is tried again.
"""

from __future__ import annotations

_DECAY = 0.98
"""Of a sample's weight with each newer one."""
_SURPRISE = 2.0
"""What took longer than so many times the expected counts as that: the step lost its core."""
_FORGET = 0.005
"""Of all samples' weight, with each plain step: half of it in 140 steps."""
_OF_ONE, _OF_EACH = 0.1, 0.55
"""A row's price is expected to be that part of a step of one decode, or of what each of several
decodes takes, whichever is less. SmolLM2 on two quiet cores: 0.2 to 0.27 ms, of 2.5 and of 0.48."""
_OF_STEP = 0.05
"""What a step with drafts takes beside their rows: 0.15 ms of 2.5 with one stream, 0.4 of 8 with
sixteen."""
_LEAN_BASE, _LEAN_ROW = 8.0, 64.0
"""How many samples of the one, and of a row alone, the expected counts for: without steps of
different numbers of rows nobody can tell the two apart."""
_LEAST_PART = 0.6
"""Of what is expected of a row: less is the noise of a machine that others use."""


class DraftPrice:
    """Milliseconds: `base_ms` of a step, `ms` of a row at no context."""

    __slots__ = (
        "_expected_base_ms",
        "_expected_ms",
        "_num",
        "_took",
        "_weight",
        "_weight_took",
        "_weights",
        "base_ms",
        "ms",
    )

    def __init__(self) -> None:
        self._expected_ms = self._expected_base_ms = 0.0
        self._num = self._weight = self._weights = self._took = self._weight_took = 0.0
        self.ms = self.base_ms = 0.0
        """As expected before the first sample; 0 before the first plain step."""

    def add(self, weight: float, added_ms: float) -> None:
        """A step whose rows of drafts weighed so much took so much longer than one without."""
        added_ms = min(added_ms, _SURPRISE * (self.base_ms + self.ms * weight))
        self._fade(_DECAY)
        self._num += 1.0
        self._weight += weight
        self._weights += weight * weight
        self._took += added_ms
        self._weight_took += weight * added_ms
        self._solve()

    def note_plain(self, num_decodes: int, plain_ms: float, one_ms: float) -> None:
        """A step of so many decodes without drafts, which take `plain_ms`, and one alone
        `one_ms`."""
        self._expected_ms = min(_OF_ONE * one_ms, _OF_EACH * plain_ms / num_decodes)
        self._expected_base_ms = _OF_STEP * plain_ms
        self._fade(1.0 - _FORGET)
        self._solve()

    def _fade(self, factor: float) -> None:
        self._num *= factor
        self._weight *= factor
        self._weights *= factor
        self._took *= factor
        self._weight_took *= factor

    def _solve(self) -> None:
        num, weights = self._num + _LEAN_BASE, self._weights + _LEAN_ROW
        took = self._took + _LEAN_BASE * self._expected_base_ms
        weight_took = self._weight_took + _LEAN_ROW * self._expected_ms
        row_ms = (num * weight_took - self._weight * took) / (
            num * weights - self._weight * self._weight
        )
        self.ms = max(row_ms, _LEAST_PART * self._expected_ms)
        self.base_ms = max(0.0, (took - self._weight * self.ms) / num)
