"""Unnormalised probabilities of whole rows, a few rows at a time.

A group of rows stays in the cache between the passes over it, and its memory is used again and
again: fresh pages for every step cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

BLOCK = 128
"""Rows are filled up with zeros to a multiple of this."""
_GROUP = 8


class RowWeights:
    """exp((logit - maximum) / temperature): 1 for the likeliest token of a row."""

    def __init__(self) -> None:
        self._workspace = torch.empty(0, 0)

    def groups(
        self, logits: torch.Tensor, rows: list[int], temperatures: torch.Tensor
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """(some of `rows`, float32 [num_rows, padded vocab_size]), until all had their turn.

        `logits` is [all rows, vocab_size], `temperatures` [all rows, 1]. The weights may be
        changed, and are gone with the next group.
        """
        for start in range(0, len(rows), _GROUP):
            group = rows[start : start + _GROUP]
            index = torch.tensor(group, device=logits.device)
            weights = self._memory(logits)[: len(group)]
            inner = weights[:, : logits.shape[1]]
            torch.index_select(logits, 0, index, out=inner)
            inner.sub_(inner.amax(dim=-1, keepdim=True)).div_(temperatures[index]).exp_()
            yield group, weights

    def _memory(self, logits: torch.Tensor) -> torch.Tensor:
        padded = -(-logits.shape[1] // BLOCK) * BLOCK
        if self._workspace.shape[1] != padded or self._workspace.device != logits.device:
            self._workspace = logits.new_zeros(_GROUP, padded)
        return self._workspace
