"""Time on a GPU: CUDA graphs between events, cold caches, rates of the device in the same run.

Work is captured and replayed, so that Python is not measured and kernels follow each other as in a
decode step. Copies of the work on memory of their own, together over four times the L2 cache, push
each other's data out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.report import Row

Work = Callable[[], object]

L2_TIMES = 4
REPEATS = 30
MATRIX = 8192
COPY_BYTES = 2 << 30
MIN_LAUNCHES = 10
"""A figure whose floor is under so many empty launches measures launches, and has no goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFloor:
    """Rates of this device, measured, in bytes, operations and seconds."""

    name: str
    copy_bytes_per_s: float
    """Read and written, each counted."""
    bf16_flops_per_s: float
    launch_s: float
    """An almost empty kernel in a graph."""

    def __str__(self) -> str:
        return (
            f"{self.name}: copy {self.copy_bytes_per_s / 1e12:.2f} TB/s, "
            f"matrix product {self.bf16_flops_per_s / 1e12:.0f} TFLOP/s, "
            f"launch {self.launch_s * 1e6:.1f} us"
        )

    def bytes_row(self, name: str, rounds_s: Sequence[float], num_bytes: float, part: float) -> Row:
        """A kernel that should reach `part` of the copy bandwidth."""
        floor_s = num_bytes / self.copy_bytes_per_s
        is_judged = floor_s >= MIN_LAUNCHES * self.launch_s
        return gpu_row(name, rounds_s, floor_s, floor_s / part if is_judged else None)

    def flops_row(
        self, name: str, rounds_s: Sequence[float], flops: float, goal_s: float | None = None
    ) -> Row:
        """A kernel beside the rate of a large matrix product; the goal is another's time."""
        floor_s = flops / self.bf16_flops_per_s
        return gpu_row(name, rounds_s, floor_s, goal_s)


def gpu_row(
    name: str, rounds_s: Sequence[float], floor_s: float | None, goal_s: float | None = None
) -> Row:
    """In microseconds."""
    rounds = [seconds * 1e6 for seconds in rounds_s]
    return Row(
        name,
        statistics.median(rounds),
        "us",
        None if floor_s is None else floor_s * 1e6,
        None if goal_s is None else goal_s * 1e6,
        (min(rounds), max(rounds)),
    )


def measure_floor() -> GpuFloor:
    """The best of the repeats, for nothing else runs on the device."""
    device = torch.device("cuda")
    source, target = (torch.empty(COPY_BYTES // 2, dtype=torch.uint8, device=device) for _ in "12")
    left, right = (torch.randn(MATRIX, MATRIX, device=device).bfloat16() for _ in "12")
    small = torch.zeros(32, device=device)
    return GpuFloor(
        name=torch.cuda.get_device_name(device),
        copy_bytes_per_s=COPY_BYTES / min(seconds_per_work([lambda: target.copy_(source)])),
        bf16_flops_per_s=2.0 * MATRIX**3 / min(seconds_per_work([lambda: left @ right])),
        launch_s=min(seconds_per_work([lambda: small.add_(1.0)] * 100)),
    )


def num_copies(num_bytes: int) -> int:
    """Of inputs of `num_bytes`, so that no input is in the cache when its turn comes again."""
    l2_bytes = torch.cuda.get_device_properties("cuda").L2_cache_size
    return 1 + L2_TIMES * l2_bytes // max(1, num_bytes)


def seconds_per_work(works: Sequence[Work], repeats: int = REPEATS) -> list[float]:
    """Every round replays all works in turn; the round's seconds over their number."""
    graph, _results = captured(works)
    graph.replay()
    started, ended = (
        [torch.cuda.Event(enable_timing=True) for _ in range(repeats)] for _ in range(2)
    )
    for start, end in zip(started, ended, strict=True):
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    spans = zip(started, ended, strict=True)
    return [start.elapsed_time(end) / 1e3 / len(works) for start, end in spans]


def captured(works: Sequence[Work]) -> tuple[torch.cuda.CUDAGraph, list[object]]:
    """The works one after another, and their results, which are kept so that each writes to memory
    of its own. Every work runs before: nothing compiles while the graph is captured."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for work in works:
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [work() for work in works]
    return graph, results
