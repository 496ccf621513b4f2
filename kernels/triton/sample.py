"""Sampling of a batch without a sort and without the host: a threshold search over logits.

    _find_maxima    [row, split]  maximum and where it is first
    _count_buckets  [row, split]  rows with top-k or top-p: how many tokens lie how far below it
    _choose_bucket  [row]         the bucket that surely holds the lowest token to be kept
    _collect        [row, split]  tokens down to that bucket, in the order of their ids
    _draw_row       [row]         the exact limits among these, 1 bit of a float per pass; the draw

A row whose candidates are more than `CAPACITY`, or that has no top-k and no top-p, is searched
whole. Weights are integers (see kernels/reference/sample.py), so that a row's token does not depend
on how it was split or what else is in the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require
from kernels.reference import sample as reference
from kernels.reference.sample import Draws, check_sample
from kernels.triton.launch import next_power_of_2, on_device_of

BUCKETS = tl.constexpr(1024)
PER_NAT = tl.constexpr(32.0)
"""Buckets per unit of (maximum - logit) / temperature: 1024 of them reach down to e**-32."""
CAPACITY = tl.constexpr(4096)
CHUNK = tl.constexpr(4096)
SLACK = tl.constexpr(1.0001)
"""Over the rounding of float32 sums of 1024 buckets."""
COLDEST = tl.constexpr(reference.COLDEST)
UNIT = tl.constexpr(float(1 << reference.WEIGHT_BITS))
"""The mass of the likeliest token."""
_PROGRAMS = 264
"""About two for each of an H100's 132 multiprocessors."""
_WARPS = 8


# grid [num_rows, num_splits]
@triton.jit(do_not_specialize=("split_size", "num_splits"))
def _find_maxima(
    logits,
    part_maxima,
    part_ids,
    row_stride,
    vocab_size,
    split_size,
    num_splits,
):
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    top, place = float("-inf"), split * split_size
    for first in range(split * split_size, tl.minimum((split + 1) * split_size, vocab_size), CHUNK):
        at = first + tl.arange(0, CHUNK)
        value = tl.load(logits + row * row_stride + at, mask=at < vocab_size, other=float("-inf"))
        value = tl.where(value == value, value, float("inf"))  # a NaN shows in the maximum
        chunk_top = tl.max(value, axis=0)
        chunk_place = tl.min(tl.where(value == chunk_top, at, vocab_size - 1), axis=0)
        place = tl.where(chunk_top > top, chunk_place, place)
        top = tl.maximum(top, chunk_top)
    tl.store(part_maxima + row * num_splits + split, top)
    tl.store(part_ids + row * num_splits + split, place)


@triton.jit
def _row_maximum(part_maxima, row, num_splits, SPLITS: tl.constexpr):
    splits = tl.arange(0, SPLITS)
    at = part_maxima + row * num_splits + splits
    maximum = tl.max(tl.load(at, mask=splits < num_splits, other=float("-inf")), axis=0)
    return tl.where(tl.abs(maximum) < float("inf"), maximum, 0.0)


@triton.jit
def _bucket(value, maximum, temperature):
    """Of values below infinity; where a row has others, only that it is a bucket counts."""
    depth = tl.where(value < float("inf"), maximum - value, 0.0) / temperature
    return tl.minimum(tl.maximum(depth, 0.0) * PER_NAT, BUCKETS - 1.0).to(tl.int32)


# grid [num_rows, num_splits]
@triton.jit(do_not_specialize=("split_size", "num_splits"))
def _count_buckets(
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
        maximum = _row_maximum(part_maxima, row, num_splits, SPLITS)
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
def _choose_bucket(
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
def _collect(
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
        maximum = _row_maximum(part_maxima, row, num_splits, SPLITS)
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
def _total_mass(values, num, floor, least, maximum, temperature):
    """int64: of the values not below `floor` whose weight is not below `least`."""
    total = tl.zeros([CHUNK], tl.int64)
    for first in range(0, num, CHUNK):
        at = first + tl.arange(0, CHUNK)
        value = tl.load(values + at, mask=at < num, other=float("-inf"))
        weight = tl.exp((value - maximum) / temperature)
        kept = (value >= floor) & (weight >= least)
        total += tl.where(kept, (weight * UNIT).to(tl.int64), 0)
    return tl.sum(total, axis=0)


# grid [num_rows]
@triton.jit(do_not_specialize=("num_splits",))
def _draw_row(
    logits,
    part_maxima,
    part_ids,
    temperatures,
    top_k,
    top_p,
    min_p,
    numbers,
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
        is_narrow = False
        floor = maximum - float("inf")
        if HAS_LIMITS:
            num_found = tl.load(num_candidates + row)
            is_narrow = num_found > 0
            if is_narrow:
                source, num = values + row * CAPACITY, num_found
            count, share = tl.load(top_k + row), tl.load(top_p + row)
            if (count > 0) & (count < vocab_size):
                floor = _lowest_kept(source, num, floor, count, maximum, temperature, False)
            if share < 1.0:
                if count > 0:
                    mass = _total_mass(source, num, floor, 0.0, maximum, temperature)
                else:
                    at = part_masses + part
                    mass = tl.sum(tl.load(at, mask=splits < num_splits, other=0), axis=0)
                wanted = tl.maximum(tl.ceil(share * mass.to(tl.float64)).to(tl.int64), 1)
                floor = _lowest_kept(source, num, floor, wanted, maximum, temperature, True)
        least = tl.load(min_p + row)
        total = _total_mass(source, num, floor, least, maximum, temperature)
        target = tl.minimum((tl.load(numbers + row) * total.to(tl.float64)).to(tl.int64), total - 1)
        before, index = total * 0, total * 0
        for first in range(0, num, CHUNK):
            at = first + tl.arange(0, CHUNK)
            value = tl.load(source + at, mask=at < num, other=float("-inf"))
            weight = tl.exp((value - maximum) / temperature)
            kept = (value >= floor) & (weight >= least)
            mass = tl.where(kept, (weight * UNIT).to(tl.int64), 0)
            sums = before + tl.cumsum(mass, axis=0)
            index += tl.sum(((sums <= target) & (at < num)).to(tl.int64), axis=0)
            before += tl.sum(mass, axis=0)
        chosen = index
        if is_narrow:
            chosen = tl.load(ids + row * CAPACITY + index).to(tl.int64)
    tl.store(maxima + row, maximum)
    tl.store(drawn + row, chosen)


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
        _find_maxima[self._maxima.shape](
            self._logits, self._maxima, self._ids, *self._sizes(), num_warps=_WARPS
        )

    def narrow(self, draws: Draws) -> None:
        """To the tokens that top-k or top-p may keep."""
        parts, shape = self._maxima.shape, (*self._maxima.shape, BUCKETS.value)
        counts, starts = self._new(shape, torch.int32), self._new(parts, torch.int32)
        cuts = self._new(parts[:1], torch.int32)
        scaled = (self._logits, self._maxima, draws.temperatures)
        limits = (draws.top_k, draws.top_p)
        _count_buckets[parts](
            *scaled, *limits, counts, self._masses, *self._sizes(), self._splits, num_warps=_WARPS
        )
        targets = (starts, cuts, self._num_candidates)
        _choose_bucket[parts[:1]](
            counts, self._masses, *limits, *targets, self._num_splits, self._splits
        )
        found = (self._values, self._value_ids)
        _collect[parts](*scaled, *targets, *found, *self._sizes(), self._splits, num_warps=_WARPS)

    def draw(self, draws: Draws, maxima: torch.Tensor, ids: torch.Tensor) -> None:
        """Writes the results, one for each row."""
        _draw_row[maxima.shape](
            self._logits,
            self._maxima,
            self._ids,
            draws.temperatures,
            draws.top_k,
            draws.top_p,
            draws.min_p,
            draws.numbers,
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
