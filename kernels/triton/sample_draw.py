"""The exact limits among a row's candidates, 1 bit of a float per pass; then the race.

Weights are integers (see kernels/reference/sample.py), so that a row's token does not depend on how
it was split or what else is in the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.sample_candidates import CAPACITY
from kernels.triton.sample_maxima import CHUNK, COLDEST, UNIT
from kernels.triton.sample_race import win_race


@triton.jit
def _float_of(key):
    """The float that is at `key`, uint32, in the order of all floats; the lowest are -infinity."""
    bits = key.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ -2147483648, ~bits)
    return tl.where(key < 1 << 23, float("-inf"), bits.to(tl.float32, bitcast=True))


@triton.jit
def _lowest_kept(values, num, floor, wanted, maximum, temperature, BY_MASS: tl.constexpr):
    """The highest value for which it and all above, of those not below `floor`, reach `wanted`:
    in mass, or in number."""
    found, bit = tl.full([], 0, tl.uint32), tl.full([], 1 << 31, tl.uint32)
    nothing = tl.zeros([CHUNK], tl.int64)
    for _ in range(0, 32):
        tried = _float_of(found | bit)
        total = nothing
        for first in range(0, num, CHUNK):
            at = first + tl.arange(0, CHUNK)
            value = tl.load(values + at, mask=at < num, other=float("-inf"))
            kept = (value >= tried) & (value >= floor) & (at < num)
            if BY_MASS:
                mass = (tl.exp((value - maximum) / temperature) * UNIT).to(tl.int64)
                total += tl.where(kept, mass, 0)
            else:
                total += kept.to(tl.int64)
        found = tl.where(tl.sum(total, axis=0) >= wanted, found | bit, found)
        bit = bit >> 1
    return tl.maximum(_float_of(found), floor)


@triton.jit
def _total_mass(values, num, floor, maximum, temperature):
    """int64: of the values not below `floor`."""
    total = tl.zeros([CHUNK], tl.int64)
    for first in range(0, num, CHUNK):
        at = first + tl.arange(0, CHUNK)
        value = tl.load(values + at, mask=at < num, other=float("-inf"))
        weight = tl.exp((value - maximum) / temperature)
        total += tl.where(value >= floor, (weight * UNIT).to(tl.int64), 0)
    return tl.sum(total, axis=0)


@triton.jit
def _lowest_allowed(values, num, vocab_size, count, share, masses, has_part, maximum, temperature):
    """What `count` (top-k), then `share` (top-p) leave of the row; -infinity where neither asks.
    `masses`, where it `has_part`: of its parts, which together are the row's without top-k."""
    floor = maximum - float("inf")
    if (count > 0) & (count < vocab_size):
        floor = _lowest_kept(values, num, floor, count, maximum, temperature, False)
    if share < 1.0:
        if count > 0:
            mass = _total_mass(values, num, floor, maximum, temperature)
        else:
            mass = tl.sum(tl.load(masses, mask=has_part, other=0), axis=0)
        wanted = tl.maximum(tl.ceil(share * mass.to(tl.float64)).to(tl.int64), 1)
        floor = _lowest_kept(values, num, floor, wanted, maximum, temperature, True)
    return floor


# grid [num_rows]
@triton.jit(do_not_specialize=("num_splits",))
def draw_row(
    logits,
    part_maxima,
    part_ids,
    temperatures,
    top_k,
    top_p,
    min_gaps,
    keys,
    part_masses,
    num_candidates,
    values,
    ids,
    maxima,
    drawn,
    row_stride,
    vocab_size,
    num_splits,
    HAS_LIMITS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, SPLITS)
    part = row * num_splits + splits
    tops = tl.load(part_maxima + part, mask=splits < num_splits, other=float("-inf"))
    maximum = tl.max(tops, axis=0)
    places = tl.load(part_ids + part, mask=splits < num_splits, other=vocab_size)
    chosen = tl.min(tl.where(tops == maximum, places, vocab_size), axis=0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    if (temperature > 0.0) & (tl.abs(maximum) < float("inf")):
        temperature = tl.maximum(temperature, COLDEST)
        source, num = logits + row * row_stride, vocab_size
        is_narrow = tl.full([], 0, tl.int1)
        floor = maximum - float("inf")
        if HAS_LIMITS:
            num_found = tl.load(num_candidates + row)
            is_narrow = num_found > 0
            if is_narrow:
                source, num = values + row * CAPACITY, num_found
            asked = (tl.load(top_k + row), tl.load(top_p + row))
            masses, has_part = part_masses + part, splits < num_splits
            by = (maximum, temperature)
            floor = _lowest_allowed(source, num, vocab_size, *asked, masses, has_part, *by)
        among = (source, ids + row * CAPACITY, is_narrow, num)
        limits = (floor, tl.load(min_gaps + row))
        chosen = win_race(*among, *limits, maximum, temperature, tl.load(keys + row))
    tl.store(maxima + row, maximum)
    tl.store(drawn + row, chosen)
