"""Sampling on a CPU: the tokens of `kernels/reference/sample.py`, some rows at a time.

    top-k, top-p   the 128 likeliest tell what is kept (sample_likeliest.py) -> their running sum
    else           the whole row: sums of blocks of 128 (row_passes.py) -> a block -> a token in it

The sum of a block is a tenth of the price of a running sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from kernels.cpu.row_passes import BLOCK, RowPasses, SomeRows, passes_for
from kernels.cpu.sample_likeliest import draw_among_likeliest, target_of
from kernels.reference.row_argmax import row_argmax
from kernels.reference.sample import COLDEST, UNIT, Draws, check_sample

_GROUP = 8
"""Rows that stay in the cache between the passes over them."""


def sample(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """See kernels/reference/sample.py."""
    return sample_by(passes_for(logits), logits, draws)


def sample_by(
    passes: RowPasses, logits: torch.Tensor, draws: Draws
) -> tuple[torch.Tensor, torch.Tensor]:
    """See kernels/reference/sample.py."""
    check_sample(logits, draws)
    maxima, ids = row_argmax(logits)
    columns = zip(maxima.tolist(), draws.temperatures.tolist(), strict=True)
    drawn = [row for row, (top, t) in enumerate(columns) if t > 0 and math.isfinite(top)]
    batch = _Batch(passes, logits, maxima, draws)
    wide = batch.draw_limited(drawn, ids) if draws.has_limits else drawn
    batch.draw_wide(wide, ids)
    return maxima, ids


class _Batch:
    """A call's rows; ids are written where they belong."""

    def __init__(
        self, passes: RowPasses, logits: torch.Tensor, maxima: torch.Tensor, draws: Draws
    ) -> None:
        self._passes, self._logits, self._maxima, self._draws = passes, logits, maxima, draws
        self._drops = draws.has_limits or bool((draws.min_p > 0).any())

    def draw_limited(self, drawn: list[int], ids: torch.Tensor) -> list[int]:
        """Rows with top-k or top-p, as far as the likeliest tell; returns all that are left."""
        draws, top_k, top_p = self._draws, self._draws.top_k.tolist(), self._draws.top_p.tolist()
        rows = [row for row in drawn if top_k[row] or top_p[row] < 1.0]
        if not rows:
            return drawn
        totals = self._totals([row for row in rows if not top_k[row]])
        if len(rows) == len(self._logits):
            is_told, found = draw_among_likeliest(self._logits, draws, totals)
        else:
            mine = self._logits[rows], draws.of(rows), totals[rows]
            is_told, found = draw_among_likeliest(*mine)
        ids[rows] = found
        told = {row for row, done in zip(rows, is_told.tolist(), strict=True) if done}
        return [row for row in drawn if row not in told]

    def draw_wide(self, rows: list[int], ids: torch.Tensor) -> None:
        """Rows of which every token is looked at."""
        for group, some in self._groups(rows):
            if self._draws.has_limits:
                self._raise_floors(group, some)
            masses, numbers = self._passes.block_masses(some), self._draws.numbers[group, None]
            sums = masses.cumsum(dim=-1)  # [num_rows, num_blocks]
            target = target_of(sums[:, -1:], numbers)
            block = torch.searchsorted(sums, target, right=True)  # [num_rows, 1]
            rest = target - (sums - masses).gather(-1, block)
            inside = self._masses_in(block, some).cumsum(dim=-1)  # [num_rows, BLOCK]
            place = torch.searchsorted(inside, rest, right=True)
            ids[group] = (block * BLOCK + place)[:, 0]

    def _totals(self, rows: list[int]) -> torch.Tensor:
        """int64 [all rows]: the mass of `rows`, before min-p; 0 for the others."""
        totals = torch.zeros(len(self._logits), dtype=torch.int64)
        for group, some in self._groups(rows):
            before_min_p = replace(some, min_p=torch.zeros_like(some.min_p))
            totals[group] = self._passes.block_masses(before_min_p).sum(dim=-1)
        return totals

    def _raise_floors(self, group: slice | list[int], some: SomeRows) -> None:
        """To what top-k keeps, and then to what top-p keeps of it."""
        for place, top_k in enumerate(self._draws.top_k[group].tolist()):
            if 0 < top_k < some.vocab_size:
                logits = self._logits[some.index[place]].numpy()
                some.floors[place] = float(np.partition(logits, -top_k)[-top_k])
        self._passes.raise_floors(some, self._draws.top_p[group])

    def _masses_in(self, block: torch.Tensor, some: SomeRows) -> torch.Tensor:
        """Of the tokens of one block of each row: int64 [num_rows, BLOCK]."""
        places = block * BLOCK + torch.arange(BLOCK)
        weights = some.weights.gather(-1, places)
        masses = (weights * UNIT).long()
        if self._drops:
            logits = some.logits[some.index[:, None], places.clamp(max=some.vocab_size - 1)]
            is_dropped = (logits < some.floors[:, None]) | (weights < some.min_p[:, None])
            masses.masked_fill_(is_dropped, 0)
        return masses

    def _groups(self, rows: list[int]) -> Iterator[tuple[slice | list[int], SomeRows]]:
        """All of `rows`, ascending, with their weights; the memory of a group is the next one's."""
        padded = -(-self._logits.shape[1] // BLOCK) * BLOCK
        memory = self._logits.new_empty(min(len(rows), _GROUP), padded)
        for start in range(0, len(rows), _GROUP):
            members = rows[start : start + _GROUP]
            group = _as_slice(members)
            some = SomeRows(
                logits=self._logits,
                index=torch.tensor(members),
                maxima=self._maxima[group],
                temperatures=self._draws.temperatures[group].clamp(min=COLDEST),
                weights=memory[: len(members)],
                floors=torch.full((len(members),), -math.inf),
                min_p=self._draws.min_p[group],
            )
            self._passes.fill_weights(some)
            yield group, some


def _as_slice(rows: list[int]) -> slice | list[int]:
    """Neighbours are indexed without a copy."""
    first, after = rows[0], rows[-1] + 1
    return slice(first, after) if after - first == len(rows) else rows
