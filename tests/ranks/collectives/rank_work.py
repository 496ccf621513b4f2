"""What ranks do in tests.

Every rank knows what all others have, since it follows from their numbers, and so compares what it
gets with what it should get.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from ranks.collectives.group_collective import GroupCollective

Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """Of one call at one rank."""

    is_right: bool
    digest: str
    """Of the bytes that it got."""


def rows_of(rank: int, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """What that rank brings."""
    generator = torch.Generator().manual_seed(1000 * rank + shape[0])
    return (4 * torch.randn(shape, generator=generator)).to(dtype)


def sum_in_order(num_ranks: int, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """In float32, one rank after the other, rounded once."""
    total = rows_of(0, shape, dtype).float()
    for rank in range(1, num_ranks):
        total = total + rows_of(rank, shape, dtype).float()
    return total.to(dtype)


def reduced(collective: GroupCollective, shape: Shape, dtype: torch.dtype) -> Found:
    rows = rows_of(collective.rank, shape, dtype)
    collective.all_reduce(rows)
    return found(rows, sum_in_order(collective.world_size, shape, dtype))


def gathered(collective: GroupCollective, num_rows: int, width: int, dtype: torch.dtype) -> Found:
    """Equal widths."""
    parts = [rows_of(at, (num_rows, width), dtype) for at in range(collective.world_size)]
    return found(collective.all_gather(parts[collective.rank]), torch.cat(parts, dim=1))


def gathered_unevenly(
    collective: GroupCollective, num_rows: int, widths: list[int], dtype: torch.dtype
) -> Found:
    parts = [rows_of(at, (num_rows, width), dtype) for at, width in enumerate(widths)]
    out = collective.all_gather(parts[collective.rank], widths)
    return found(out, torch.cat(parts, dim=1))


def gathered_at(
    collective: GroupCollective, root: int, num_rows: int, width: int, dtype: torch.dtype
) -> bool:
    """Several times: nobody overwrites what the root still reads."""
    parts = [rows_of(at, (num_rows, width), dtype) for at in range(collective.world_size)]
    for turn in range(3):
        out = collective.gather(parts[collective.rank] + turn, root)
        if collective.rank == root:
            expected = torch.cat([part + turn for part in parts], dim=1)
            if not torch.equal(out, expected):
                return False
    return True


def scattered(
    collective: GroupCollective, num_rows: list[int], width: int, dtype: torch.dtype
) -> bool:
    shape = (sum(num_rows), width)
    before = rows_of(collective.rank, shape, dtype)
    rows = before.clone()
    out = collective.reduce_scatter(rows, num_rows)
    expected = sum_in_order(collective.world_size, shape, dtype).split(num_rows)[collective.rank]
    return torch.equal(out, expected) and torch.equal(rows, before)


def swapped(
    collective: GroupCollective,
    numbers: list[list[int]],
    width: int,
    dtype: torch.dtype,
    is_known: bool = False,
) -> bool:
    """numbers[from][to]"""
    rank, ranks = collective.rank, range(collective.world_size)
    given = [rows_of(at, (sum(numbers[at]), width), dtype).split(numbers[at]) for at in ranks]
    by_destination = torch.tensor(numbers).t().contiguous()
    known = by_destination.t() if is_known else None  # as a caller may have them: not contiguous
    received = collective.all_to_all(torch.cat(given[rank]), numbers[rank], known)
    expected = torch.cat([given[at][rank] for at in ranks])
    in_order = received.num_rows == [numbers[at][rank] for at in ranks]
    return in_order and torch.equal(received.rows, expected)


def told(collective: GroupCollective, root: int, shape: Shape, dtype: torch.dtype) -> Found:
    rows = rows_of(collective.rank, shape, dtype)
    collective.broadcast(rows, root)
    return found(rows, rows_of(root, shape, dtype))


def met(collective: GroupCollective, deadline_s: float) -> bool:
    collective.meet(deadline_s)
    return True


def reduced_often(collective: GroupCollective, num_calls: int, shape: Shape) -> int:
    """Of ones, so that a call which took rows of another call would be seen."""
    for call in range(num_calls):
        rows = torch.full(shape, float(call % 100 + collective.rank))
        collective.all_reduce(rows)
        expected = sum(call % 100 + rank for rank in range(collective.world_size))
        if not bool((rows == expected).all()):
            raise AssertionError(f"call {call}: {rows.unique().tolist()} instead of {expected}")
    return num_calls


def growth_of(
    collective: GroupCollective, work: Callable[[GroupCollective], object]
) -> tuple[int, int]:
    """Bytes and descriptors that `work` leaves behind, after it has run once before."""
    work(collective)
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss, process.num_fds()
    work(collective)
    return process.memory_info().rss - before[0], process.num_fds() - before[1]


def mixed(collective: GroupCollective, num_rounds: int) -> int:
    """All operations in turn."""
    ranks = collective.world_size
    for turn in range(num_rounds):
        shape = (ranks * (1 + turn % 3), 64)
        rows = rows_of(collective.rank, shape, torch.float32)
        collective.all_reduce(rows)
        collective.all_gather(rows)
        collective.reduce_scatter(rows, [shape[0] // ranks] * ranks)
        collective.all_to_all(rows, [shape[0] // ranks] * ranks)
        collective.broadcast(rows, turn % ranks)
    return num_rounds


def rank_apart(collective: GroupCollective) -> None:
    """A mistake of ours: rank 0 reduces while the others broadcast."""
    rows = torch.ones(2, 8)
    if collective.rank == 0:
        collective.all_reduce(rows)
    else:
        collective.broadcast(rows, 0)


def left(collective: GroupCollective) -> None:
    collective.close()
    collective.close()
    collective.all_reduce(torch.ones(1, 1))


def found(got: torch.Tensor, expected: torch.Tensor) -> Found:
    is_right = got.dtype is expected.dtype and torch.equal(got, expected)
    data = got.contiguous().view(torch.uint8).numpy().tobytes()
    return Found(is_right, hashlib.sha256(data).hexdigest())
