"""Ranks of one process: collectives for tests of what is recorded and played between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from kernels.tape.collective import ReceivedRows

LIMIT_S = 60.0
T = TypeVar("T")


class SameEverywhere:
    """A Collective of ranks that all hold the same rows: their mean is what they hold."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self.reduced: list[tuple[int, ...]] = []
        """Shapes, in the order of the calls."""

    @property
    def world_size(self) -> int:
        """See Collective."""
        return self._world_size

    def all_reduce(self, rows: torch.Tensor) -> None:
        """See Collective; the mean instead of the sum."""
        assert rows.is_contiguous()
        self.reduced.append(tuple(rows.shape))
        rows.mul_(self._world_size).div_(self._world_size)

    def all_gather(self, rows: torch.Tensor) -> torch.Tensor:
        """See Collective."""
        return rows.repeat(1, self._world_size)

    def wait_until_landed(self) -> None:
        """See Collective: it has."""

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """See Collective."""
        return self.all_gather(rows)


class ThreadRank:
    """An ExpertCollective of one thread among those of `run_ranks`."""

    def __init__(self, rank: int, shelf: list[torch.Tensor], barrier: threading.Barrier) -> None:
        self._rank, self._shelf, self._barrier = rank, shelf, barrier

    @property
    def rank(self) -> int:
        """See ExpertCollective."""
        return self._rank

    @property
    def world_size(self) -> int:
        """See Collective."""
        return len(self._shelf)

    def all_reduce(self, rows: torch.Tensor) -> None:
        """See Collective: in the order of the ranks, in float32."""
        rows.copy_(self._sum(rows))

    def all_gather(self, rows: torch.Tensor, widths: Sequence[int] = ()) -> torch.Tensor:
        """See ExpertCollective."""
        parts = self._exchanged(rows)
        assert not widths or [part.shape[1] for part in parts] == list(widths)
        return torch.cat(parts, dim=1)

    def wait_until_landed(self) -> None:
        """See Collective: it has."""

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """See Collective."""
        gathered = self.all_gather(rows)
        return gathered if self._rank == root else gathered[:0]

    def reduce_scatter(self, rows: torch.Tensor, num_rows: Sequence[int]) -> torch.Tensor:
        """See ExpertCollective."""
        return self._sum(rows).to(rows.dtype).split(list(num_rows))[self._rank].clone()

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> ReceivedRows:
        """See ExpertCollective; what is said to be known is true."""
        assert sum(num_rows) == len(rows)
        numbers = [part.tolist() for part in self._exchanged(torch.tensor(num_rows))]
        assert known is None or known.tolist() == numbers
        parts = self._exchanged(rows)
        mine = [part.split(number)[self._rank] for part, number in zip(parts, numbers, strict=True)]
        return ReceivedRows(torch.cat(mine), [number[self._rank] for number in numbers])

    def _sum(self, rows: torch.Tensor) -> torch.Tensor:
        parts = self._exchanged(rows)
        total = parts[0].float()
        for part in parts[1:]:
            total = total + part.float()
        return total

    def _exchanged(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Those of all ranks. Nobody overwrites them while another reads."""
        self._shelf[self._rank] = rows.clone()
        self._barrier.wait(LIMIT_S)
        parts = list(self._shelf)
        self._barrier.wait(LIMIT_S)
        return parts


class LateRank(ThreadRank):
    """What it gathers lies on a device: nothing is there before somebody has waited for it."""

    UNWRITTEN = -77

    def __init__(self, rank: int, shelf: list[torch.Tensor], barrier: threading.Barrier) -> None:
        super().__init__(rank, shelf, barrier)
        self._on_the_way: list[tuple[torch.Tensor, torch.Tensor]] = []

    def all_gather(self, rows: torch.Tensor, widths: Sequence[int] = ()) -> torch.Tensor:
        """See ExpertCollective."""
        found = super().all_gather(rows, widths)
        unwritten = torch.full_like(found, self.UNWRITTEN)
        self._on_the_way.append((unwritten, found))
        return unwritten

    def wait_until_landed(self) -> None:
        """See Collective."""
        for unwritten, found in self._on_the_way:
            unwritten.copy_(found)
        self._on_the_way.clear()


def run_ranks(
    num_ranks: int, work: Callable[[int, ThreadRank], T], kind: type[ThreadRank] = ThreadRank
) -> list[T]:
    """The results of `work(rank, collective)`, each on a thread of its own."""
    barrier = threading.Barrier(num_ranks)
    shelf = [torch.empty(0)] * num_ranks

    def run(rank: int) -> T:
        try:
            return work(rank, kind(rank, shelf, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(num_ranks) as threads:
        return list(threads.map(run, range(num_ranks)))
