"""Narrows a row to the tokens that top-k or top-p may keep, by how far below the maximum they are.

    count_buckets       [row, split]  how many tokens lie how far below the maximum
    choose_bucket       [row]         the bucket that surely holds the lowest token to be kept
    collect_candidates  [row, split]  tokens down to that bucket, in the order of their ids

Rows with neither limit are left whole, and so is a row with more candidates than `CAPACITY`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.sample_maxima import CHUNK, COLDEST, UNIT, row_maximum

BUCKETS = tl.constexpr(1024)
PER_NAT = tl.constexpr(32.0)
"""Buckets per unit of (maximum - logit) / temperature: 1024 of them reach down to e**-32."""
CAPACITY = tl.constexpr(4096)
SLACK = tl.constexpr(1.0001)
"""Over the rounding of float32 sums of 1024 buckets."""


@triton.jit
def _bucket(value, maximum, temperature):
    """Of values below infinity; where a row has others, only that it is a bucket counts."""
    depth = tl.where(value < float("inf"), maximum - value, 0.0) / temperature
    return tl.minimum(tl.maximum(depth, 0.0) * PER_NAT, BUCKETS - 1.0).to(tl.int32)


# grid [num_rows, num_splits]
@triton.jit(do_not_specialize=("split_size", "num_splits"))
def count_buckets(
    logits,
    part_maxima,
    temperatures,
    top_k,
    top_p,
    counts,
    part_masses,
    row_stride,
    vocab_size,
    split_size,
    num_splits,
    SPLITS: tl.constexpr,
):
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if (tl.load(top_k + row) > 0) | (tl.load(top_p + row) < 1.0):
        maximum = row_maximum(part_maxima, row, num_splits, SPLITS)
        temperature = tl.maximum(tl.load(temperatures + row), COLDEST)
        found = tl.zeros([BUCKETS], tl.int32)
        mass = tl.zeros([CHUNK], tl.int64)
        end = tl.minimum((split + 1) * split_size, vocab_size)
        for first in range(split * split_size, end, CHUNK):
            at = first + tl.arange(0, CHUNK)
            value = tl.load(logits + row * row_stride + at, mask=at < end, other=float("-inf"))
            value = tl.where(value == value, value, float("-inf"))  # a row with a NaN is not drawn
            found += tl.histogram(_bucket(value, maximum, temperature), BUCKETS, mask=at < end)
            weight = tl.exp(tl.minimum(value - maximum, 0.0) / temperature)
            mass += (weight * UNIT).to(tl.int64)
        part = row * num_splits + split
        tl.store(counts + part * BUCKETS + tl.arange(0, BUCKETS), found)
        tl.store(part_masses + part, tl.sum(mass, axis=0))


# grid [num_rows]
@triton.jit(do_not_specialize=("num_splits",))
def choose_bucket(
    counts,
    part_masses,
    top_k,
    top_p,
    starts,  # int32 [num_rows, num_splits]: where a split's candidates go
    cuts,  # int32 [num_rows]: the last bucket of candidates
    num_candidates,  # int32 [num_rows]; 0: the whole row
    num_splits,
    SPLITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    wanted_count, wanted_share = tl.load(top_k + row), tl.load(top_p + row)
    num = 0
    if (wanted_count > 0) | (wanted_share < 1.0):
        buckets, splits = tl.arange(0, BUCKETS), tl.arange(0, SPLITS)
        found = tl.zeros([BUCKETS], tl.int32)
        for split in range(0, num_splits):
            found += tl.load(counts + (row * num_splits + split) * BUCKETS + buckets)
        at = part_masses + row * num_splits + splits
        total = tl.sum(tl.load(at, mask=splits < num_splits, other=0), axis=0)
        lightest = tl.where(buckets < BUCKETS - 1, tl.exp(-(buckets + 1.0) / PER_NAT), 0.0)
        at_least = tl.cumsum(found * lightest, axis=0)
        share = wanted_share.to(tl.float32) * (total.to(tl.float32) / UNIT) * SLACK
        by_count = tl.sum((tl.cumsum(found, axis=0) < wanted_count).to(tl.int32), axis=0)
        by_share = tl.sum((at_least < share).to(tl.int32), axis=0)
        # top-p counts in what top-k left, so that all of the top-k have to be there
        cut = tl.where(wanted_count > 0, by_count, by_share)
        for split in range(0, num_splits):
            tl.store(starts + row * num_splits + split, num)
            mine = tl.load(counts + (row * num_splits + split) * BUCKETS + buckets)
            num += tl.sum(tl.where(buckets <= cut, mine, 0), axis=0)
        num = tl.where((num > CAPACITY) | (cut >= BUCKETS), 0, num)
        tl.store(cuts + row, cut)
    tl.store(num_candidates + row, num)


# grid [num_rows, num_splits]
@triton.jit(do_not_specialize=("split_size", "num_splits"))
def collect_candidates(
    logits,
    part_maxima,
    temperatures,
    starts,
    cuts,
    num_candidates,
    values,  # float32 [num_rows, CAPACITY]
    ids,  # int32 [num_rows, CAPACITY]
    row_stride,
    vocab_size,
    split_size,
    num_splits,
    SPLITS: tl.constexpr,
):
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(num_candidates + row) > 0:
        maximum = row_maximum(part_maxima, row, num_splits, SPLITS)
        temperature = tl.maximum(tl.load(temperatures + row), COLDEST)
        cut = tl.load(cuts + row)
        place = tl.load(starts + row * num_splits + split)
        end = tl.minimum((split + 1) * split_size, vocab_size)
        for first in range(split * split_size, end, CHUNK):
            at = first + tl.arange(0, CHUNK)
            value = tl.load(logits + row * row_stride + at, mask=at < end, other=float("-inf"))
            kept = (_bucket(value, maximum, temperature) <= cut) & (at < end)
            number = kept.to(tl.int32)
            to = row * CAPACITY + place + tl.cumsum(number, axis=0) - number
            tl.store(values + to, value, mask=kept)
            tl.store(ids + to, at, mask=kept)
            place += tl.sum(number, axis=0)
