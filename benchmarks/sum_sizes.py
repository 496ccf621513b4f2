"""Times of sums by size and dtype: the table, the rows to keep, and the picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.collective_rank import DTYPES, WIDTH, Times
from benchmarks.goals import ALL_REDUCE_1_ROW_US, ALL_REDUCE_512_ROWS_FACTOR
from benchmarks.plot import Line, plot_lines
from benchmarks.report import Row, Verdict, percentile


@dataclass(frozen=True, slots=True)
class Spent:
    """Microseconds of a call."""

    median_us: float
    p99_us: float

    @classmethod
    def of(cls, times_us: Sequence[float]) -> Spent:
        """Of all calls."""
        return cls(statistics.median(times_us), percentile(times_us, 99))


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsOfSize:
    """So many rows of one dtype."""

    num_rows: int
    dtype: str
    shared: Spent
    gloo: Spent
    copies: Spent
    """In and out of the segment: the floor."""

    @property
    def num_bytes(self) -> int:
        """Of the rows."""
        item: torch.dtype = DTYPES[self.dtype]
        return self.num_rows * WIDTH * item.itemsize

    @property
    def row(self) -> Row:
        """Beside its floor and its goal."""
        floor = self.copies.median_us
        goals = {1: ALL_REDUCE_1_ROW_US, 512: floor * ALL_REDUCE_512_ROWS_FACTOR}
        name = f"{self.num_rows} rows, {self.dtype}"
        return Row(name, self.shared.median_us, "us", floor, goals.get(self.num_rows))


def sizes_of(times: Times) -> list[SumsOfSize]:
    """By dtype, then by size."""
    works = {name.split("/")[1] for name in times}
    found = [_of_work(work, times) for work in works]
    return sorted(found, key=lambda sums: (sums.dtype, sums.num_rows))


def rows_of(sizes: Sequence[SumsOfSize]) -> list[Row]:
    """To be kept: of each size the median, its p99, and gloo's."""
    rows = []
    for sums in sizes:
        kept, floor = sums.row, sums.copies.median_us
        others = {
            "p99": sums.shared.p99_us,
            "gloo": sums.gloo.median_us,
            "gloo, p99": sums.gloo.p99_us,
        }
        rows += [kept, *(Row(f"{kept.name}, {k}", v, "us", floor) for k, v in others.items())]
    return rows


def print_sizes(sizes: Sequence[SumsOfSize]) -> None:
    """To stdout, a line for each size."""
    print(
        f"  {'':8} {'rows':>6} {'KiB':>7} {'shared':>8} {'p99':>8} {'gloo':>8} {'p99':>8}"
        f" {'copies':>8} {'x copies':>8}  goal"
    )
    for sums in sizes:
        spent = (sums.shared, sums.gloo)
        cells = "".join(f" {_us(each.median_us)} {_us(each.p99_us)}" for each in spent)
        ratio = f"{sums.shared.median_us / sums.copies.median_us:8.2f}"
        print(
            f"  {sums.dtype:8} {sums.num_rows:6} {sums.num_bytes / 1024:7.1f}{cells}"
            f" {_us(sums.copies.median_us)} {ratio}  {_goal(sums.row)}".rstrip()
        )


def plot_sizes(sizes: Sequence[SumsOfSize], path: Path) -> None:
    """A panel for each dtype, a line for each way to meet. Writes a PNG."""
    panels = {}
    for dtype in sorted({sums.dtype for sums in sizes}):
        own = [sums for sums in sizes if sums.dtype == dtype]
        kib = [sums.num_bytes / 1024 for sums in own]
        panels[dtype] = [
            Line("shared memory", kib, [sums.shared.median_us for sums in own]),
            Line("gloo", kib, [sums.gloo.median_us for sums in own]),
            Line("copies in and out (floor)", kib, [sums.copies.median_us for sums in own]),
        ]
    plot_lines("all_reduce over two ranks", panels, ("KiB", "microseconds"), path)


def _of_work(work: str, times: Times) -> SumsOfSize:
    """Of "512 rows, bfloat16"."""
    num_rows, dtype = work.split(" rows, ")
    return SumsOfSize(
        num_rows=int(num_rows),
        dtype=dtype,
        shared=Spent.of(times[f"shared/{work}"]),
        gloo=Spent.of(times[f"gloo/{work}"]),
        copies=Spent.of(times[f"copies/{work}"]),
    )


def _us(value: float) -> str:
    return f"{value:8,.0f}" if value >= 100 else f"{value:8.2f}"


def _goal(row: Row) -> str:
    if row.verdict is Verdict.NO_GOAL or row.goal is None:
        return ""
    return f"{row.goal:.3g} {row.verdict}"
