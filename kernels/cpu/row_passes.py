"""Passes over whole rows of logits that are sampled: natively, or by torch and numpy.

    weights          exp((logit - maximum) / temperature), by torch: its bits are the reference's
    masses           sums over rows
    nucleus floors   the lowest logits that top-p keeps, found in buckets of which one is sorted
    race             the token of the highest score of those that are kept

A mass is a weight in whole units of 2**-44: float32 holds each exactly. A race of a row of 49152
tokens, one thread with AVX2 on a busy machine: 0.065 ms.
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
from kernels.reference.token_noise import FACTORS, gumbel_noise

_BUCKET_SHIFT = 16
"""Leaves 7 bits of a float32's mantissa: buckets 0.8 % wide."""
_HALF = float(1 << 22)
"""Sums of 2**19 halves of masses, below and above this, are exact in float64."""
_BOUND_MARGIN = 1e-3
"""Over the rounding of a bound, of some 1e-5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeRows:
    """Rows that are sampled together; tensors are contiguous and have one entry for each."""

    logits: torch.Tensor  # float32 [all rows, vocab_size]
    index: torch.Tensor  # int64: which of them
    maxima: torch.Tensor  # float32
    temperatures: torch.Tensor  # float32, more than 0
    floors: torch.Tensor  # float32: logits below it are dropped; -infinity for no limit


class RowPasses(Protocol):
    """What is done with every token of some rows. `weights` are float32 [num_rows, vocab_size]."""

    def fill_weights(self, some: SomeRows, weights: torch.Tensor) -> None:
        """Computes them."""

    def masses(self, weights: torch.Tensor) -> torch.Tensor:
        """int64 [num_rows]."""

    def raise_floors(self, some: SomeRows, weights: torch.Tensor, top_p: torch.Tensor) -> None:
        """Of rows whose `top_p`, float64, is less than 1: to the lowest logit in the smallest set
        of the likeliest, of those not below the floor, with that share of their mass."""

    def race(self, some: SomeRows, min_gaps: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """int64 [num_rows]: the tokens that are drawn, by columns of Draws."""


def passes_for(logits: torch.Tensor) -> RowPasses:
    """The fastest that there are."""
    library = native_library() if logits.is_contiguous() else None
    return TorchPasses() if library is None else NativePasses(library)


class NativePasses:
    """RowPasses by `native/sample.cpp` and `native/race.cpp`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def fill_weights(self, some: SomeRows, weights: torch.Tensor) -> None:
        """See RowPasses."""
        self._library.splitserve_row_depths(
            *_place(some),
            some.maxima.data_ptr(),
            some.temperatures.data_ptr(),
            weights.data_ptr(),
            TEAM.num_threads,
        )
        weights.exp_()

    def masses(self, weights: torch.Tensor) -> torch.Tensor:
        """See RowPasses."""
        num_rows, width = weights.shape
        masses = torch.empty(num_rows, dtype=torch.int64)
        self._library.splitserve_row_masses(
            weights.data_ptr(), width, num_rows, masses.data_ptr(), TEAM.num_threads
        )
        return masses

    def raise_floors(self, some: SomeRows, weights: torch.Tensor, top_p: torch.Tensor) -> None:
        """See RowPasses."""
        self._library.splitserve_nucleus_floors(
            *_place(some),
            weights.data_ptr(),
            some.maxima.data_ptr(),
            top_p.data_ptr(),
            some.floors.data_ptr(),
            TEAM.num_threads,
        )

    def race(self, some: SomeRows, min_gaps: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """See RowPasses."""
        ids = torch.empty_like(some.index)
        self._library.splitserve_race(
            *_place(some),
            some.maxima.data_ptr(),
            some.temperatures.data_ptr(),
            some.floors.data_ptr(),
            min_gaps.data_ptr(),
            keys.data_ptr(),
            ids.data_ptr(),
            TEAM.num_threads,
        )
        return ids


def _place(some: SomeRows) -> tuple[int, int, int, int, int]:
    """The head of a native pass's arguments."""
    logits, index = some.logits, some.index
    return logits.data_ptr(), logits.stride(0), logits.shape[1], index.data_ptr(), len(index)


class TorchPasses:
    """RowPasses on any CPU."""

    def fill_weights(self, some: SomeRows, weights: torch.Tensor) -> None:
        """See RowPasses."""
        torch.index_select(some.logits, 0, some.index, out=weights)
        weights.sub_(some.maxima[:, None]).div_(some.temperatures[:, None]).exp_()

    def masses(self, weights: torch.Tensor) -> torch.Tensor:
        """See RowPasses."""
        return (weights * UNIT).long().sum(dim=-1)

    def raise_floors(self, some: SomeRows, weights: torch.Tensor, top_p: torch.Tensor) -> None:
        """See RowPasses."""
        for place, share in enumerate(top_p.tolist()):
            if share < 1.0:
                logits = some.logits[some.index[place]].numpy()
                is_in = logits >= float(some.floors[place])
                chosen = weights[place].numpy()[is_in]
                floor = _nucleus_floor(logits[is_in], np.floor(chosen * np.float32(UNIT)), share)
                some.floors[place] = max(float(some.floors[place]), floor)

    def race(self, some: SomeRows, min_gaps: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """See RowPasses."""
        ids = torch.empty_like(some.index)
        for place, row in enumerate(some.index.tolist()):
            logits = some.logits[row].numpy()
            gaps = logits - some.maxima[place].numpy()
            kept = (logits >= some.floors[place].numpy()) & (gaps >= min_gaps[place].numpy())
            token_ids = np.flatnonzero(kept)
            depths = gaps[token_ids] / some.temperatures[place].numpy()
            ids[place] = _winner(depths, token_ids, keys[place])
        return ids


def _winner(
    depths: npt.NDArray[np.float32], token_ids: npt.NDArray[np.int64], key: torch.Tensor
) -> int:
    """The token of the highest score; those that a bound of theirs keeps below that of one have no
    need of their own."""

    def scores(places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = depths[places].astype(np.float64)
        found += gumbel_noise(torch.from_numpy(token_ids[places]), key).numpy()
        return found

    with np.errstate(invalid="ignore"):  # a banned token without a bound: then all have theirs
        bounds = depths - _least_logs(token_ids.astype(np.uint32), int(key))
    [likely] = scores(np.array([bounds.argmax()]))
    places = np.flatnonzero(bounds >= np.float32(likely - _BOUND_MARGIN))
    return int(token_ids[places[scores(places).argmax()]])


def _least_logs(words: npt.NDArray[np.uint32], key: int) -> npt.NDArray[np.float32]:
    """Tokens -> logs of what -log(1 - u) is not below: u, of which their words say most. The words
    are those of token_noise.py, in the type that wraps by itself: a fifth of the time."""
    words ^= np.uint32(key & 0xFFFFFFFF)
    for place, (shift, factor) in enumerate(zip((17, 11, 15), FACTORS, strict=True)):
        if place == 2:
            words ^= np.uint32(key >> 32 & 0xFFFFFFFF)
        words ^= words >> np.uint32(shift)
        words *= np.uint32(factor)
    words ^= words >> np.uint32(14)
    logs = words.astype(np.float32) * np.float32(2.0**-32)
    with np.errstate(divide="ignore"):  # of 0 it is -infinity
        np.log(logs, out=logs)
    return logs


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
