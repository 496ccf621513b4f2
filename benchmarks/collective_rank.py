"""One of the two ranks of bench_collectives: sums and copies by turns, and prints its times."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch

from cluster.sharding import Rank
from ranks.collectives.gloo import GlooCollective
from ranks.collectives.native_calls import load_collectives
from ranks.collectives.segment import SharedSegment
from ranks.collectives.shared_memory import SharedMemoryCollective
from ranks.collectives.store import join_store

Times = dict[str, list[float]]
"""Microseconds of each call, by "kind/work"."""

WIDTH = 576
SIZES = (1, 4, 16, 64, 128, 512, 2048)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BATCH_BYTES = 8 << 20
"""Of one kind of work at a time; no fewer calls than the least, no more than the most."""
FEWEST, MOST, MOST_BY_GLOO = 20, 400, 40
WARM_UP = 5
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the parent tells a rank."""

    rank: int
    core: int
    segment_fd: int
    store_port: int
    rounds: int

    def as_word(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))


class Copies:
    """The floor: rows into the own tray, then the other's out of its tray, without the waits."""

    def __init__(self, segment: SharedSegment, rank: int, meet: Callable[[], None]) -> None:
        trays = [segment.tray_address(at) for at in (rank, 1 - rank)]
        self._mine, self._theirs, self._meet = *trays, meet
        self._most = segment.tray_bytes

    def take(self, rows: torch.Tensor) -> float:
        """Microseconds in and out."""
        total_us, data = 0.0, rows.data_ptr()
        for at in range(0, rows.nbytes, self._most):
            size = min(self._most, rows.nbytes - at)
            total_us += timed_us(partial(ctypes.memmove, self._mine, data + at, size))
            self._meet()
            total_us += timed_us(partial(ctypes.memmove, data + at, self._theirs, size))
            self._meet()
        return total_us


def timed_us(work: Callable[[], object]) -> float:
    """Of one call."""
    started = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started) / 1e3


def num_calls(num_bytes: int, most: int) -> int:
    """In a row."""
    return max(FEWEST, min(most, BATCH_BYTES // num_bytes))


class Turns:
    """Every kind of work on every size, by turns."""

    def __init__(
        self, shared: SharedMemoryCollective, gloo: GlooCollective, copies: Copies
    ) -> None:
        self._shared, self._gloo, self._copies = shared, gloo, copies
        self.times: Times = {}

    def take(self, work: str, rows: torch.Tensor) -> None:
        """One round of one size."""
        calls = num_calls(rows.nbytes, MOST)
        self._shared.meet(DEADLINE_S)
        self._add(f"shared/{work}", self._sums(self._shared.all_reduce, rows, calls))
        self._add(f"copies/{work}", [self._copies.take(rows) for _ in range(calls)])
        by_gloo = self._sums(self._gloo.all_reduce, rows, num_calls(rows.nbytes, MOST_BY_GLOO))
        self._add(f"gloo/{work}", by_gloo)

    def _sums(
        self, all_reduce: Callable[[torch.Tensor], None], rows: torch.Tensor, calls: int
    ) -> list[float]:
        rows.fill_(0)  # sums of sums would run out of range
        for _ in range(WARM_UP):
            all_reduce(rows)
        return [timed_us(lambda: all_reduce(rows)) for _ in range(calls)]

    def _add(self, name: str, times: list[float]) -> None:
        self.times.setdefault(name, []).extend(times)


def main() -> None:
    """Prints the times as JSON."""
    schedule = Schedule(**json.loads(sys.argv[1]))
    os.sched_setaffinity(0, [schedule.core])
    torch.set_num_threads(1)
    place = Rank(schedule.rank, 2)
    segment = SharedSegment.attach(schedule.segment_fd, world_size=2, generation=1)
    library = load_collectives()
    shared = SharedMemoryCollective(segment, place, library, deadline_s=DEADLINE_S)
    store = join_store("127.0.0.1", schedule.store_port, 1, timeout_s=DEADLINE_S)
    gloo = GlooCollective(store, place, 1, address="127.0.0.1", deadline_s=DEADLINE_S)
    copies = Copies(segment, place.index, lambda: shared.meet(DEADLINE_S))
    turns = Turns(shared, gloo, copies)
    for _ in range(schedule.rounds):
        for num_rows in SIZES:
            for name, dtype in DTYPES.items():
                rows = torch.zeros(num_rows, WIDTH, dtype=dtype)
                turns.take(f"{num_rows} rows, {name}", rows)
    print(json.dumps(turns.times))


if __name__ == "__main__":
    main()
