"""Sampling on a CPU: the tokens of `kernels/reference/sample.py`.

top-k, top-p   the lowest logit that is kept, which the 128 likeliest mostly tell
               (sample_likeliest.py), else the whole row, some rows at a time
draw           a race of what is left (row_passes.py)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from kernels.cpu.row_passes import RowPasses, SomeRows, passes_for
from kernels.cpu.sample_likeliest import floors_by_likeliest
from kernels.reference.row_argmax import row_argmax
from kernels.reference.sample import COLDEST, Draws, check_sample

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
    if drawn:
        batch = _Batch(passes, logits, maxima, draws)
        if draws.has_limits:
            batch.find_floors(drawn)
        some = batch.some(drawn)
        ids[drawn] = passes.race(some, draws.min_gaps[drawn], draws.keys[drawn])
    return maxima, ids


class _Batch:
    """A call's rows, and the lowest logits that their limits keep."""

    def __init__(
        self, passes: RowPasses, logits: torch.Tensor, maxima: torch.Tensor, draws: Draws
    ) -> None:
        self._passes, self._logits, self._maxima, self._draws = passes, logits, maxima, draws
        self._floors = torch.full((len(logits),), -math.inf)

    def some(self, rows: list[int]) -> SomeRows:
        """These rows, with their floors."""
        return SomeRows(
            logits=self._logits,
            index=torch.tensor(rows),
            maxima=self._maxima[rows],
            temperatures=self._draws.temperatures[rows].clamp(min=COLDEST),
            floors=self._floors[rows],
        )

    def find_floors(self, drawn: list[int]) -> None:
        """Of rows with top-k or top-p."""
        top_k, top_p = self._draws.top_k.tolist(), self._draws.top_p.tolist()
        rows = [row for row in drawn if top_k[row] or top_p[row] < 1.0]
        if not rows:
            return
        totals = self._totals([row for row in rows if not top_k[row]])
        mine = self._logits if len(rows) == len(self._logits) else self._logits[rows]
        floors, is_told = floors_by_likeliest(mine, self._draws.of(rows), totals[rows])
        self._floors[rows] = floors
        self._search([row for row, told in zip(rows, is_told.tolist(), strict=True) if not told])

    def _totals(self, rows: list[int]) -> torch.Tensor:
        """int64 [all rows]: the mass of `rows`; 0 for the others."""
        totals = torch.zeros(len(self._logits), dtype=torch.int64)
        for group, _, weights in self._weighed(rows):
            totals[group] = self._passes.masses(weights)
        return totals

    def _search(self, rows: list[int]) -> None:
        """To what top-k keeps, and then to what top-p keeps of it, of the whole row."""
        self._floors[rows] = -math.inf
        for group, some, weights in self._weighed(rows):
            for place, top_k in enumerate(self._draws.top_k[group].tolist()):
                if 0 < top_k < self._logits.shape[1]:
                    logits = self._logits[group[place]].numpy()
                    some.floors[place] = float(np.partition(logits, -top_k)[-top_k])
            self._passes.raise_floors(some, weights, self._draws.top_p[group])
            self._floors[group] = some.floors

    def _weighed(self, rows: list[int]) -> Iterator[tuple[list[int], SomeRows, torch.Tensor]]:
        """All of `rows`, with their weights; the memory of a group is the next one's."""
        memory = self._logits.new_empty(min(len(rows), _GROUP), self._logits.shape[1])
        for start in range(0, len(rows), _GROUP):
            group = rows[start : start + _GROUP]
            some, weights = self.some(group), memory[: len(group)]
            self._passes.fill_weights(some, weights)
            yield group, some, weights
