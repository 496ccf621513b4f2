"""(row, expert) pairs sorted into tiles of one expert each, without a word to the host.

    pairs    expert 0: 3, 7, 9, -, | expert 2: 0, 4, 5, 6, | 8, -, -, -, | ...
    experts         0                     2                   2

A tile's order is not fixed; nothing that is computed from it depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from kernels.triton.launch import next_power_of_2, on_device_of

_CHUNK = 1024
_TILES = tl.constexpr(64)


@dataclass(frozen=True, slots=True)
class PairTiles:
    """Tiles for the worst distribution; those behind the last used one have no expert."""

    pairs: torch.Tensor  # int32 [num_tiles, rows]: row * k + place; num_pairs where there is none
    experts: torch.Tensor  # int32 [num_tiles]; num_experts where there is none


# grid [cdiv(num_pairs, CHUNK)]
@triton.jit(do_not_specialize=("num_pairs",))
def _count_pairs(ids, counts, num_pairs, CHUNK: tl.constexpr, EXPERTS: tl.constexpr):
    at, experts = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK), tl.arange(0, EXPERTS)
    chosen = tl.load(ids + at, mask=at < num_pairs, other=0).to(tl.int32)
    found = tl.histogram(chosen, EXPERTS, mask=at < num_pairs)
    tl.atomic_add(counts + experts, found, mask=found > 0)


# grid [1]
@triton.jit(do_not_specialize=("num_tiles",))
def _plan_tiles(
    counts, cursors, experts, num_experts, num_tiles, ROWS: tl.constexpr, EXPERTS: tl.constexpr
):
    every = tl.arange(0, EXPERTS)
    used = tl.cdiv(tl.load(counts + every), ROWS)
    ends = tl.cumsum(used, axis=0)
    tl.store(cursors + every, (ends - used) * ROWS)
    ends = tl.where(every < num_experts, ends, num_tiles)
    for first in range(0, num_tiles, _TILES):
        tiles = first + tl.arange(0, _TILES)
        expert = tl.sum((ends[None, :] <= tiles[:, None]).to(tl.int32), axis=1)
        expert = tl.minimum(expert, num_experts)
        tl.store(experts + tiles, expert, mask=tiles < num_tiles)


# grid [cdiv(num_pairs, CHUNK)]
@triton.jit(do_not_specialize=("num_pairs",))
def _place_pairs(ids, cursors, pairs, num_pairs, CHUNK: tl.constexpr):
    at = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = at < num_pairs
    chosen = tl.load(ids + at, mask=inside, other=0)
    place = tl.atomic_add(cursors + chosen, 1, mask=inside)
    tl.store(pairs + place, at, mask=inside)


def align_pairs(ids: torch.Tensor, num_experts: int, rows: int) -> PairTiles:
    """ids int64 [num_rows, k], contiguous -> tiles of `rows` pairs."""
    num_pairs, device = ids.numel(), ids.device
    num_tiles = triton.cdiv(num_pairs, rows) + min(num_experts, num_pairs)
    width = next_power_of_2(num_experts)
    counts = torch.zeros(width, dtype=torch.int32, device=device)
    cursors = torch.empty(width, dtype=torch.int32, device=device)
    pairs = torch.full((num_tiles, rows), num_pairs, dtype=torch.int32, device=device)
    experts = torch.empty(num_tiles, dtype=torch.int32, device=device)
    chunks = (triton.cdiv(num_pairs, _CHUNK),)
    with on_device_of(ids):
        _count_pairs[chunks](ids, counts, num_pairs, CHUNK=_CHUNK, EXPERTS=width)
        _plan_tiles[(1,)](
            counts, cursors, experts, num_experts, num_tiles, ROWS=rows, EXPERTS=width
        )
        _place_pairs[chunks](ids, cursors, pairs, num_pairs, CHUNK=_CHUNK)
    return PairTiles(pairs, experts)
