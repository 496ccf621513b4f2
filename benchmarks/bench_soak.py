"""Whether memory stays where it is: the resident size of every process under half an hour of a
mixed load.

`python -m benchmarks.bench_soak [--minutes N] [--json PATH]`. A whole fleet (1 + 1, the real model,
NIXL). Of every process: the mean of the last quarter of the time over that of the second quarter,
in percent; the first quarter fills caches. Requests that were answered otherwise than they should
be are counted, and shown.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.local_fleet import LocalFleet, whole_fleet
from benchmarks.mixed_load import MixedLoad
from benchmarks.report import Row, exit_code, print_table, write_json

MINUTES = 30.0
NUM_CLIENTS = 8
LOOK_EVERY_S = 5.0
MAX_GROWTH_PERCENT = 2.0
Sizes = dict[str, list[float]]
"""By process, in MiB, one for each look."""


def main() -> int:
    """Prints the table; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with whole_fleet(num_workers=2) as fleet:
        rows = asyncio.run(_measure(fleet, 60 * arguments.minutes))
    print_table(f"{arguments.minutes:g} minutes of {NUM_CLIENTS} mixed clients", rows)
    write_json(arguments.json, "soak", rows)
    return exit_code(rows)


async def _measure(fleet: LocalFleet, duration_s: float) -> list[Row]:
    load = MixedLoad(fleet.port, fleet.grpc_port, NUM_CLIENTS)
    load.start()
    try:
        sizes = await _looks(fleet, time.monotonic() + duration_s)
    finally:
        await load.stop()
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(load.answers.items())))
    for what, count in load.wrong.most_common(10):
        print(f"{count} x {what}")
    rows = [growth(name, seen) for name, seen in sorted(sizes.items())]
    return [*rows, Row("wrong answers", load.wrong.total(), "requests", goal=0)]


async def _looks(fleet: LocalFleet, end_s: float) -> Sizes:
    sizes: Sizes = defaultdict(list)
    supervisor = psutil.Process(fleet.supervisor_pid)
    while time.monotonic() < end_s:
        for process in [supervisor, *supervisor.children(recursive=True)]:
            # One that was replaced ends while it is looked at; its successor has a row of its own.
            with suppress(psutil.NoSuchProcess), process.oneshot():
                sizes[_name(process)].append(process.memory_info().rss / 2**20)
        await asyncio.sleep(LOOK_EVERY_S)
    return sizes


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    module = words[words.index("-m") + 1] if "-m" in words else process.name()
    what = words[words.index("-m") + 2] if module == "cli" else ""
    return f"{module} {what}".strip() + f" ({process.pid})"


def growth(name: str, seen_mib: list[float]) -> Row:
    """Of the last quarter over the second, in percent."""
    quarter = max(1, len(seen_mib) // 4)
    before, after = seen_mib[quarter : 2 * quarter] or seen_mib, seen_mib[-quarter:]
    percent = 100 * (statistics.fmean(after) / statistics.fmean(before) - 1)
    shown = f"{name}, {statistics.fmean(after):.0f} MiB"
    return Row(shown, percent, "%", goal=MAX_GROWTH_PERCENT)


if __name__ == "__main__":
    raise SystemExit(main())
