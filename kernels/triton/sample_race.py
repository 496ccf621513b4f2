"""The race for a row's token: the highest log probability plus noise among those that are kept.

As on a CPU (`kernels/cpu/native/race.cpp`) logarithms are taken where a token of the chunk may win,
and then with 64 bits: the scores are the reference's.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.reference.token_noise import FACTORS
from kernels.triton.sample_maxima import CHUNK

_FIRST, _SECOND, _THIRD = (tl.constexpr(factor) for factor in FACTORS)
_WORD = tl.constexpr(0xFFFFFFFF)
_LOG2E = tl.constexpr(1.4426950408889634)
_PER_UNIT = tl.constexpr(2.0**-23)
"""Of a float32's bits, in octaves."""
_LIFT = tl.constexpr(127.0 + 31.0 + 1e-3)
"""The bias of an exponent, the bits of half a word, and a margin over the bound's rounding."""


@triton.jit
def _words(x, key):
    """See token_noise.py: uint32 in and out."""
    x = x ^ key.to(tl.uint32)
    x = (x ^ (x >> 17)) * tl.cast(_FIRST, tl.uint32)
    x = (x ^ (x >> 11)) * tl.cast(_SECOND, tl.uint32)
    x = x ^ (key >> 32).to(tl.uint32)
    x = (x ^ (x >> 15)) * tl.cast(_THIRD, tl.uint32)
    return x ^ (x >> 14)


@triton.jit
def _noise(high, key):
    """float64, of the tokens' words."""
    low = _words(high ^ tl.cast(_WORD, tl.uint32), key)
    steps = (high.to(tl.int64) << 20) | (low >> 12).to(tl.int64)
    return -tl.log(-tl.log(1.0 - (steps.to(tl.float64) + 0.5) * 2.0**-52))


@triton.jit
def win_race(values, ids, has_ids, num, floor, min_gap, maximum, temperature, key):
    """int64: the id of the winner. `ids` are those of the values, ascending, where it `has_ids`;
    else their places are."""
    best, winner = tl.full([], float("-inf"), tl.float64), tl.full([], 0, tl.int64)
    for first in range(0, num, CHUNK):
        at = first + tl.arange(0, CHUNK)
        value = tl.load(values + at, mask=at < num, other=float("-inf"))
        token = tl.where(has_ids, tl.load(ids + at, mask=has_ids & (at < num), other=0), at)
        gap = value - maximum
        depth = tl.div_rn(gap, temperature)
        high = _words(token.to(tl.uint32), key)
        bits = (high >> 1).to(tl.float32).to(tl.int32, bitcast=True)
        bound = depth * _LOG2E - bits.to(tl.float32) * _PER_UNIT + _LIFT
        kept = (value >= floor) & (gap >= min_gap) & (at < num)
        kept = kept & (bound >= (best * _LOG2E).to(tl.float32))
        if tl.sum(kept.to(tl.int32), axis=0) > 0:
            score = tl.where(kept, depth.to(tl.float64) + _noise(high, key), float("-inf"))
            top = tl.max(score, axis=0)
            place = tl.min(tl.where(score == top, token, 2147483647), axis=0).to(tl.int64)
            winner = tl.where(top > best, place, winner)
            best = tl.maximum(best, top)
    return winner
