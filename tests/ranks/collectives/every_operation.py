"""What is asked of every implementation of the collectives, whatever ranks meet by."""

from __future__ import annotations

from functools import partial

import torch

from tests.ranks.collectives import rank_work
from tests.ranks.collectives.rank_processes import RankProcesses, equal_everywhere

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((1, 576), (16, 576), (128, 576), (512, 576), (2048, 576), (1, 1), (3, 577), (1023, 77))


def check_sums(group: RankProcesses, shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Right, and the same bits at all ranks."""
    found = group.run(partial(rank_work.reduced, shape=shape, dtype=dtype))
    assert all(each.is_right for each in found) and equal_everywhere(found)


def check_gathers(group: RankProcesses, num_rows: int, dtype: torch.dtype) -> None:
    """Of even and of uneven widths, one of them nothing."""
    even = partial(rank_work.gathered, num_rows=num_rows, width=193, dtype=dtype)
    assert equal_everywhere(found := group.run(even)) and found[0].is_right
    for widths in ([64, 192, 7][: len(group)], [0, 33, 5][: len(group)]):
        uneven = partial(rank_work.gathered_unevenly, num_rows=num_rows, widths=widths, dtype=dtype)
        assert equal_everywhere(found := group.run(uneven)) and found[0].is_right
    for root in range(len(group)):
        at_one = partial(rank_work.gathered_at, root=root, num_rows=num_rows, width=193)
        assert all(group.run(partial(at_one, dtype=dtype)))


def check_scattered_sums(group: RankProcesses, dtype: torch.dtype) -> None:
    """Each rank has its own rows, be they many, few or none."""
    for num_rows in ([5, 5, 5], [0, 700, 31], [1, 0, 0], [0, 0, 0]):
        counts = num_rows[: len(group)]
        work = partial(rank_work.scattered, num_rows=counts, width=96, dtype=dtype)
        assert all(group.run(work)), counts


def check_swaps(group: RankProcesses, dtype: torch.dtype) -> None:
    """Rows go where they are for, also when one rank has all of them, or none has any."""
    for numbers in (
        [[3, 1, 2], [4, 0, 5], [0, 7, 1]],
        [[0, 900, 1], [0, 0, 0], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
    ):
        square = [row[: len(group)] for row in numbers[: len(group)]]
        work = partial(rank_work.swapped, numbers=square, width=80, dtype=dtype)
        assert all(group.run(work)), square
        assert all(group.run(partial(work, is_known=True))), square


def check_broadcasts(group: RankProcesses, dtype: torch.dtype) -> None:
    """From every rank, short and long."""
    for root in range(len(group)):
        for shape in ((1, 9), (900, 200)):
            found = group.run(partial(rank_work.told, root=root, shape=shape, dtype=dtype))
            assert all(each.is_right for each in found)
