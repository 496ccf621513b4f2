"""Passes over whole rows of logits that are sampled: natively, or by torch and numpy.

    weights          exp((logit - maximum) / temperature), by torch: its bits are the reference's
    nucleus floors   the lowest logits that top-p keeps, found in buckets of which one is sorted
    block masses     sums over 128 tokens of what is kept

A mass is a weight in whole units of 2**-44: float32 holds each exactly, and float64 the sum of a
block. A row of 49152 tokens, one thread: 0.013 ms for block masses and 0.13 ms for a nucleus floor;
0.042 ms and 0.68 ms by torch and numpy.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from kernels.cpu.native_library import native_library
from kernels.cpu.team import TEAM
from kernels.reference.sample import UNIT

BLOCK = 128
_BUCKET_SHIFT = 16
"""Leaves 7 bits of a float32's mantissa: buckets 0.8 % wide."""
_HALF = float(1 << 22)
"""Sums of 2**19 halves of masses, below and above this, are exact in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows:
    """Rows that are sampled together; tensors are contiguous and have one entry for each."""

    logits: torch.Tensor  # float32 [all rows, vocab_size]
    index: torch.Tensor  # int64: which of them
    maxima: torch.Tensor  # float32
    temperatures: torch.Tensor  # float32, more than 0
    weights: torch.Tensor  # float32 [num_rows, vocab_size filled up to blocks]
    floors: torch.Tensor  # float32: logits below it are dropped; -infinity for no limit
    min_p: torch.Tensor  # float32: weights below it are dropped

    @property
    def vocab_size(self) -> int:
        """Without what fills up the last block."""
        return self.logits.shape[1]


class RowPasses(Protocol):
    """What is done with every token of some rows."""

    def fill_weights(self, some: SomeRows) -> None:
        """Computes `weights`; 0 behind the vocabulary."""

    def raise_floors(self, some: SomeRows, top_p: torch.Tensor) -> None:
        """Of rows whose `top_p`, float64, is less than 1: to the lowest logit in the smallest set
        of the likeliest, of those not below the floor, with that share of their mass."""

    def block_masses(self, some: SomeRows) -> torch.Tensor:
        """int64 [num_rows, num_blocks]."""


def passes_for(logits: torch.Tensor) -> RowPasses:
    """The fastest that there are."""
    library = native_library() if logits.is_contiguous() else None
    return TorchPasses() if library is None else NativePasses(library)


class NativePasses:
    """RowPasses by `native/sample.cpp`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def fill_weights(self, some: SomeRows) -> None:
        """See RowPasses."""
        self._library.splitserve_row_depths(
            *_place(some),
            some.maxima.data_ptr(),
            some.temperatures.data_ptr(),
            some.weights.data_ptr(),
            some.weights.shape[1],
            TEAM.num_threads,
        )
        some.weights.exp_()

    def raise_floors(self, some: SomeRows, top_p: torch.Tensor) -> None:
        """See RowPasses."""
        self._library.splitserve_nucleus_floors(
            *_place(some),
            some.weights.data_ptr(),
            some.weights.shape[1],
            some.maxima.data_ptr(),
            top_p.data_ptr(),
            some.floors.data_ptr(),
            TEAM.num_threads,
        )

    def block_masses(self, some: SomeRows) -> torch.Tensor:
        """See RowPasses."""
        num_rows, padded = some.weights.shape
        masses = torch.empty(num_rows, padded // BLOCK, dtype=torch.int64)
        self._library.splitserve_block_masses(
            *_place(some),
            some.weights.data_ptr(),
            padded,
            some.floors.data_ptr(),
            some.min_p.data_ptr(),
            masses.data_ptr(),
            TEAM.num_threads,
        )
        return masses


def _place(some: SomeRows) -> tuple[int, int, int, int, int]:
    """The head of a native pass's arguments."""
    logits = some.logits
    return (
        logits.data_ptr(),
        logits.stride(0),
        some.vocab_size,
        some.index.data_ptr(),
        len(some.index),
    )


class TorchPasses:
    """RowPasses on any CPU."""

    def fill_weights(self, some: SomeRows) -> None:
        """See RowPasses."""
        inner = some.weights[:, : some.vocab_size]
        torch.index_select(some.logits, 0, some.index, out=inner)
        inner.sub_(some.maxima[:, None]).div_(some.temperatures[:, None]).exp_()
        some.weights[:, some.vocab_size :] = 0.0

    def raise_floors(self, some: SomeRows, top_p: torch.Tensor) -> None:
        """See RowPasses."""
        for place, share in enumerate(top_p.tolist()):
            if share < 1.0:
                logits = some.logits[some.index[place]].numpy()
                is_in = logits >= float(some.floors[place])
                weights = some.weights[place, : some.vocab_size].numpy()[is_in]
                floor = _nucleus_floor(logits[is_in], np.floor(weights * np.float32(UNIT)), share)
                some.floors[place] = max(float(some.floors[place]), floor)

    def block_masses(self, some: SomeRows) -> torch.Tensor:
        """See RowPasses."""
        masses = (some.weights * UNIT).floor_()
        if bool((some.min_p > 0).any()) or bool((some.floors > -math.inf).any()):
            inner = masses[:, : some.vocab_size]
            inner.masked_fill_(some.logits[some.index] < some.floors[:, None], 0.0)
            masses.masked_fill_(some.weights < some.min_p[:, None], 0.0)
        blocks = masses.view(len(masses), -1, BLOCK)
        return blocks.sum(dim=-1, dtype=torch.float64).long()


def _nucleus_floor(
    logits: npt.NDArray[np.float32], masses: npt.NDArray[np.float32], top_p: float
) -> float:
    """As in `native/sample.cpp`; the first is the likeliest's."""
    depths = logits.max() - logits + np.float32(0.0)  # never -0, which is what -0 - 0 would be
    buckets = depths.view(np.int32) >> _BUCKET_SHIFT
    high = np.floor(masses / np.float32(_HALF))
    low = masses - high * np.float32(_HALF)
    sums = [np.bincount(buckets, weights=half).astype(np.int64) for half in (high, low)]
    mass = sums[0] * int(_HALF) + sums[1]
    likelier = mass.cumsum()  # of a bucket and all before it, likeliest first
    wanted = max(1, math.ceil(top_p * float(likelier[-1])))
    if wanted > likelier[-1]:
        return -math.inf
    bucket = int(np.searchsorted(likelier, wanted))
    members = buckets == bucket
    order = np.argsort(-logits[members])
    ranked = masses[members][order].astype(np.int64)
    before = likelier[bucket] - mass[bucket] + ranked.cumsum() - ranked
    return float(logits[members][order][np.count_nonzero(before < wanted) - 1])
