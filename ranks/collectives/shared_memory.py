"""Collectives of ranks on one host, through a segment that all of them have mapped.

    join -> call, call, call ... -> close
              '-> RankLost: no call after it; the group ends

The native code writes, posts, waits and adds (`native/segment.h` says why nobody overwrites what
another still reads). A wait spins for 50 microseconds, then gives its core away, then sleeps, and
has a deadline. Sums are made in float32, in the order of the ranks, and rounded once, so that all
ranks hold equal bits. The interpreter's lock is free meanwhile.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cluster.errors import InternalError
from cluster.sharding import Rank
from kernels.tape.collective import NativeCalls, ReceivedRows
from ranks.collectives import native_calls
from ranks.collectives.group_collective import (
    DEADLINE_S,
    numbers_of_all,
    require_counts,
    require_rows,
    require_widths,
)
from ranks.collectives.loss import has_left, is_taken, rank_lost
from ranks.collectives.native_calls import VALUE_TYPES, RankViewRecord, address_of, longs
from ranks.collectives.segment import SharedSegment

_CLOSE_LOOK_S = 1e-4


class SharedMemoryCollective:
    """A GroupCollective; one rank's."""

    def __init__(
        self,
        segment: SharedSegment,
        rank: Rank,
        library: ctypes.CDLL,
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Takes the segment over, also when it fails.

        Raises ConfigError where another process is this rank already.
        """
        self._segment, self._rank, self._deadline_s = segment, rank, deadline_s
        self._library: Any = library
        self._is_called = False
        self._view = RankViewRecord(
            segment=segment.address(),
            rank=rank.index,
            num_ranks=rank.world_size,
            tray_bytes=segment.tray_bytes,
            direct_bytes=segment.direct_bytes,
            deadline_ns=int(deadline_s * 1e9),
        )
        self._at = ctypes.addressof(self._view)
        self.native = NativeCalls(
            add=address_of(library.splitserve_all_reduce),
            sum_tray=address_of(library.splitserve_sum_tray),
            gather_tray=address_of(library.splitserve_gather_tray),
            gather=address_of(library.splitserve_gather),
            context=self._at,
            types=VALUE_TYPES,
        )
        """See NativeCollective."""
        if library.splitserve_join(self._at) != native_calls.DONE:
            self.close()
            raise is_taken(rank.index, segment.generation)

    @property
    def rank(self) -> int:
        """See GroupCollective."""
        return self._rank.index

    @property
    def world_size(self) -> int:
        """See Collective."""
        return self._rank.world_size

    @property
    def waited_s(self) -> float:
        """See GroupCollective."""
        return float(self._view.waited_ns) / 1e9

    @property
    def called_s(self) -> float:
        """See GroupCollective."""
        return float(self._view.called_ns) / 1e9

    @property
    def in_call_since_s(self) -> float | None:
        """See GroupCollective."""
        since_ns = int(self._view.called_since_ns)
        return since_ns / 1e9 if since_ns else None

    def run_natively(self, program: Callable[[], int]) -> None:
        """See NativeCollective. Raises RankLost."""
        self._run(lambda _: program())

    def beat_at(self, address: int) -> None:
        """While this rank waits for others it stamps the uint64 at `address` with nanoseconds of
        CLOCK_MONOTONIC: it lives, whatever it waits for. The memory outlives the last call."""
        self._view.beat_ns = address

    def all_reduce(self, rows: torch.Tensor) -> None:
        """See Collective. Raises RankLost."""
        if rows.dtype not in VALUE_TYPES or not rows.is_contiguous():
            require_rows(rows, is_summed=True)
        kind, data = VALUE_TYPES[rows.dtype], rows.data_ptr()
        self._call("all_reduce", kind, data, data, rows.numel())

    def all_gather(self, rows: torch.Tensor, widths: Sequence[int] = ()) -> torch.Tensor:
        """See GroupCollective. Raises RankLost."""
        require_rows(rows)
        widths = require_widths(rows, widths, self._rank)
        out = rows.new_empty((rows.shape[0], sum(widths)))
        starts = _starts(widths, rows.element_size())
        self._call("all_gather", rows.data_ptr(), rows.shape[0], starts, out.data_ptr())
        return out

    def gather(self, rows: torch.Tensor, root: int) -> torch.Tensor:
        """See Collective. Raises RankLost."""
        self._require_root(root)
        require_rows(rows)
        num_rows = rows.shape[0] if self.rank == root else 0
        out = rows.new_empty((num_rows, self.world_size * rows.shape[1]))
        row_bytes = rows.shape[1] * rows.element_size()
        self._call("gather", root, rows.data_ptr(), rows.shape[0], row_bytes, out.data_ptr())
        return out

    def reduce_scatter(self, rows: torch.Tensor, num_rows: Sequence[int]) -> torch.Tensor:
        """See ExpertCollective. Raises RankLost."""
        require_rows(rows, is_summed=True)
        require_counts("num_rows", num_rows, self.world_size, rows.shape[0])
        out = rows.new_empty((num_rows[self.rank], rows.shape[1]))
        starts = _starts(num_rows, rows.shape[1])
        kind = VALUE_TYPES[rows.dtype]
        self._call("reduce_scatter", kind, rows.data_ptr(), starts, out.data_ptr())
        return out

    def all_to_all(
        self, rows: torch.Tensor, num_rows: Sequence[int], known: torch.Tensor | None = None
    ) -> ReceivedRows:
        """See ExpertCollective: the numbers first, then the rows. Raises RankLost."""
        numbers = numbers_of_all(self, rows, num_rows, known)
        mine = numbers[:, self.rank].tolist()
        out = rows.new_empty((sum(mine), rows.shape[1]))
        row_bytes = rows.shape[1] * rows.element_size()
        self._call("all_to_all", rows.data_ptr(), row_bytes, numbers.data_ptr(), out.data_ptr())
        return ReceivedRows(out, mine)

    def broadcast(self, rows: torch.Tensor, root: int) -> None:
        """See GroupCollective. Raises RankLost."""
        self._require_root(root)
        require_rows(rows)
        self._call("broadcast", root, rows.data_ptr(), rows.nbytes)

    def meet(self, deadline_s: float) -> None:
        """See GroupCollective."""
        usual, self._deadline_s = self._deadline_s, deadline_s
        self._view.deadline_ns = int(deadline_s * 1e9)
        try:
            self._call("meet")
        finally:
            self._deadline_s = usual
            self._view.deadline_ns = int(usual * 1e9)

    def wait_until_landed(self, deadline_s: float | None = None) -> None:
        """See GroupCollective."""

    def abort(self) -> None:
        """See GroupCollective: no device waits."""

    def give_up(self) -> None:
        """This rank cannot go on: nobody waits for it any more, here or elsewhere."""
        self._segment.give_up(self.rank)

    def close(self) -> None:
        """See GroupCollective. A call that another thread is in ends with RankLost before this
        returns."""
        self._library = None  # the record points to memory that is ours no more
        if self._is_called:
            self._segment.give_up(self.rank)
        while self._is_called:
            time.sleep(_CLOSE_LOOK_S)
        self._segment.close()

    def _require_root(self, root: int) -> None:
        if not 0 <= root < self.world_size:
            raise ValueError(f"rank {root} of {self.world_size}")

    def _call(self, name: str, *arguments: object) -> None:
        self._run(lambda library: getattr(library, f"splitserve_{name}")(self._at, *arguments))

    def _run(self, work: Callable[[Any], int]) -> None:
        self._is_called = True  # before the library is looked up: `close` takes that away first
        try:
            if self._library is None:
                raise has_left()
            if outcome := work(self._library):
                self._fail(outcome)
        finally:
            self._is_called = False

    def _fail(self, outcome: int) -> None:
        if outcome == native_calls.DIFFERENT_CALL:
            raise InternalError(
                f"the ranks of generation {self._segment.generation} run different operations, or "
                f"with other shapes (seen by rank {self.rank}); the group is started anew"
            )
        segment = self._segment
        raise rank_lost(segment.lost, self.rank, segment.generation, self._deadline_s)


def _starts(counts: Sequence[int], unit: int) -> ctypes.Array[ctypes.c_int64]:
    """Where each rank's part begins, and the end: multiples of `unit`."""
    return longs([unit * start for start in itertools.accumulate(counts, initial=0)])
