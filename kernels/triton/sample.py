"""Sampling of a batch without a sort and without the host: a threshold search over logits.

    sample_maxima.py      [row, split]  maximum and where it is first
    sample_candidates.py                rows with top-k or top-p: the tokens that these may keep
    sample_draw.py        [row]         the exact limits among these; the race (sample_race.py)

A row without candidates is searched whole.
"""

from __future__ import annotations

import torch
import triton

from kernels.door import require
from kernels.reference.sample import Draws, check_sample
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.sample_candidates import (
    BUCKETS,
    CAPACITY,
    choose_bucket,
    collect_candidates,
    count_buckets,
)
from kernels.triton.sample_draw import draw_row
from kernels.triton.sample_maxima import CHUNK, find_maxima

_PROGRAMS = 264
"""About two for each of an H100's 132 multiprocessors."""
_WARPS = 8


def sample(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """See kernels/reference/sample.py. Rows of `logits` may be strided."""
    check_sample(logits, draws)
    require(logits.stride(1) == 1, f"logits have strides {logits.stride()}; needed: dense rows")
    num_rows, device = logits.shape[0], logits.device
    maxima = torch.empty(num_rows, dtype=torch.float32, device=device)
    ids = torch.empty(num_rows, dtype=torch.int64, device=device)
    if num_rows:
        work = _Workspace(logits)
        with on_device_of(logits):
            work.find_maxima()
            if draws.has_limits:
                work.narrow(draws)
            work.draw(draws, maxima, ids)
    return maxima, ids


class _Workspace:
    """The intermediate results of one batch, and the launches that fill them."""

    def __init__(self, logits: torch.Tensor) -> None:
        num_rows, vocab_size = logits.shape
        chunks = triton.cdiv(vocab_size, CHUNK.value)
        per_split = triton.cdiv(chunks, min(chunks, max(1, _PROGRAMS // num_rows)))
        self._split_size = per_split * CHUNK.value
        self._num_splits = triton.cdiv(vocab_size, self._split_size)
        self._splits = next_power_of_2(chunks)  # of one row; the same for every batch
        self._logits = logits
        parts = (num_rows, self._num_splits)
        self._maxima = self._new(parts, torch.float32)
        self._ids = self._new(parts, torch.int32)
        self._masses = self._new(parts, torch.int64)
        self._num_candidates = self._new((num_rows,), torch.int32)
        self._values = self._new((num_rows, CAPACITY.value), torch.float32)
        self._value_ids = self._new((num_rows, CAPACITY.value), torch.int32)

    def find_maxima(self) -> None:
        """Of each split."""
        find_maxima[self._maxima.shape](
            self._logits, self._maxima, self._ids, *self._sizes(), num_warps=_WARPS
        )

    def narrow(self, draws: Draws) -> None:
        """To the tokens that top-k or top-p may keep."""
        parts, shape = self._maxima.shape, (*self._maxima.shape, BUCKETS.value)
        counts, starts = self._new(shape, torch.int32), self._new(parts, torch.int32)
        cuts = self._new(parts[:1], torch.int32)
        scaled = (self._logits, self._maxima, draws.temperatures)
        limits = (draws.top_k, draws.top_p)
        count_buckets[parts](
            *scaled, *limits, counts, self._masses, *self._sizes(), self._splits, num_warps=_WARPS
        )
        targets = (starts, cuts, self._num_candidates)
        choose_bucket[parts[:1]](
            counts, self._masses, *limits, *targets, self._num_splits, self._splits
        )
        found = (self._values, self._value_ids)
        collect_candidates[parts](
            *scaled, *targets, *found, *self._sizes(), self._splits, num_warps=_WARPS
        )

    def draw(self, draws: Draws, maxima: torch.Tensor, ids: torch.Tensor) -> None:
        """Writes the results, one for each row."""
        draw_row[maxima.shape](
            self._logits,
            self._maxima,
            self._ids,
            draws.temperatures,
            draws.top_k,
            draws.top_p,
            draws.min_gaps,
            draws.keys,
            self._masses,
            self._num_candidates,
            self._values,
            self._value_ids,
            maxima,
            ids,
            self._logits.stride(0),
            self._logits.shape[1],
            self._num_splits,
            HAS_LIMITS=draws.has_limits,
            SPLITS=self._splits,
            num_warps=_WARPS,
        )

    def _sizes(self) -> tuple[int, int, int, int]:
        """Row stride, vocab size, tokens per split, splits."""
        stride, vocab_size = self._logits.stride(0), self._logits.shape[1]
        return stride, vocab_size, self._split_size, self._num_splits

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self._logits.device)
