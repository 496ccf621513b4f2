"""Steps with drafts that are captured: so many sequences, with so many rows each.

    rows of each   2, 4, 8, 16: drafts of up to 1, 3, 7, 15 tokens, and the last known token
    sequences      1, 2, 4, ..., and the most there can be
                   -> all whose rows together are not more than MOST_ROWS

A step is padded to the least of them that holds it; no draft is longer than the longest that is
captured for as many sequences as decode. A pure function of limits: all ranks of a group, and who
chooses lengths, have the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.models.footprint import LOGIT_ROWS, SCORED_ROWS

ROWS_EACH = (2, 4, 8, 16)
MOST_ROWS = LOGIT_ROWS + SCORED_ROWS
"""Rows of logits that memory is planned for."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """A captured step's."""

    num_seqs: int
    rows_each: int

    @property
    def num_rows(self) -> int:
        """Of all sequences."""
        return self.num_seqs * self.rows_each


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftShapes:
    """Those of one engine."""

    max_num_seqs: int
    max_batch_tokens: int
    max_context_tokens: int

    def all(self) -> list[DraftShape]:
        """By sequences, then rows."""
        return [
            DraftShape(num_seqs, rows_each)
            for num_seqs in self._counts()
            for rows_each in ROWS_EACH
            if self._has(num_seqs, rows_each)
        ]

    def holding(self, num_seqs: int, longest: int) -> DraftShape | None:
        """The least that holds so many sequences with up to `longest` rows each; None: none
        does."""
        counts = [count for count in self._counts() if count >= num_seqs]
        rows = [rows_each for rows_each in ROWS_EACH if rows_each >= longest]
        if not counts or not rows or not self._has(counts[0], rows[0]):
            return None
        return DraftShape(counts[0], rows[0])

    def max_draft_tokens(self, num_seqs: int) -> int:
        """The longest draft of a step of so many sequences; 0: none."""
        count = min((c for c in self._counts() if c >= num_seqs), default=None)
        if count is None:
            return 0
        return max((rows - 1 for rows in ROWS_EACH if self._has(count, rows)), default=0)

    def _counts(self) -> list[int]:
        powers = (1 << i for i in range(self.max_num_seqs.bit_length()))
        return [*(power for power in powers if power < self.max_num_seqs), self.max_num_seqs]

    def _has(self, num_seqs: int, rows_each: int) -> bool:
        most = min(MOST_ROWS, self.max_batch_tokens)
        return num_seqs * rows_each <= most and rows_each <= self.max_context_tokens
