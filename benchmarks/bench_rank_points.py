"""A rank killed or stopped at twenty points of a request's life, in either pool, under load and
through the router.

    python -m benchmarks.bench_rank_points [--points 20] [--ranks 2] [--spares 1] [--clients 4]

`splitserve serve` with one prefill and one decode worker, each of several ranks, and as many spares
of each; clients that stream greedy answers, each compared with the undisturbed one. A point is a
share of the time to the first token of one of their requests, a number of its pieces, or a fleet
without any. SIGKILL and SIGSTOP in turn, every rank in turn, the engine's own process among them.
A wrong token, an end without a typed error, a block that does not come back, a process or a name in
shared memory that is left is exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from benchmarks.fleet_state import state_of
from benchmarks.goals import SPARE_SERVES_S
from benchmarks.local_fleet import LocalFleet, whole_fleet
from benchmarks.rank_points import Outcome, Point, lose_at, points_of
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.steady_load import SteadyLoad

POOLS = ("prefill", "decode")
QUIET_S = 10.0
"""Of load, for the usual time to a first token."""


async def measure(
    fleet: LocalFleet, points: Sequence[Point], num_clients: int, num_spares: int
) -> list[Outcome]:
    """One after the other."""
    load = SteadyLoad(fleet.port, num_clients)
    await load.start()
    await asyncio.sleep(QUIET_S)
    ttft_s = statistics.median(a.arrivals_s[0] - a.sent_s for a in load.answers if a.arrivals_s)
    outcomes = []
    for number, point in enumerate(points, start=1):
        outcomes.append(await lose_at(fleet, load, point, ttft_s, num_spares))
        print(f"  {number:2} {_line(outcomes[-1])}", flush=True)
    for restarts in (await state_of(fleet)).restarts:
        print(f"  started again: {restarts.pool} {restarts.count} times for {restarts.cause}")
    await load.stop()
    return outcomes


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.point:40} replaced after {_seconds(outcome.replaced_s)}, a first token after "
        f"{_seconds(outcome.serving_s)}; {outcome.num_answered} answered, errors {outcome.errors}, "
        f"{outcome.num_wrong} wrong; blocks {'' if outcome.are_blocks_back else 'NOT '}back, "
        f"{outcome.num_processes_left} processes left, names {outcome.names_left}"
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"


def rows_of(outcomes: Sequence[Outcome], num_spares: int) -> list[Row]:
    """Times by pool, and what must never happen."""
    goal_s = SPARE_SERVES_S if num_spares else None
    rows = []
    for pool in POOLS:
        here = [outcome for outcome in outcomes if outcome.point.startswith(pool)]
        replaced = [o.replaced_s for o in here if o.replaced_s is not None]
        if replaced:
            rows.append(median_row(f"{pool}: another worker is ready", replaced, "s", goal=goal_s))
    serving = [o.serving_s for o in here if o.serving_s is not None]
    if serving:  # without a prefill worker the decode worker goes on
        rows.append(median_row(f"{pool}: a first token", serving, "s", goal=goal_s))

    def number_of(name: str, is_bad: Callable[[Outcome], int]) -> Row:
        return Row(name, sum(is_bad(outcome) for outcome in outcomes), "", goal=0)

    return [
        *rows,
        number_of("wrong or endless answers", lambda o: o.num_wrong),
        number_of("losses that nobody replaced", lambda o: o.replaced_s is None),
        number_of("losses after which no token came", lambda o: o.serving_s is None),
        number_of("losses after which blocks were held", lambda o: not o.are_blocks_back),
        number_of("processes left", lambda o: o.num_processes_left),
        number_of("names left in shared memory", lambda o: len(o.names_left)),
    ]


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=20, help="of each pool")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    flags = ("--tensor-parallel-size", str(options.ranks), "--warm-spares", str(options.spares))
    memory = ("--max-context-tokens", "2048", "--kv-memory-bytes", str(256 * 2**20))
    points = [point for pool in POOLS for point in points_of(pool, options.points, options.ranks)]
    with whole_fleet(*flags, *memory, num_workers=len(POOLS)) as fleet:
        outcomes = asyncio.run(measure(fleet, points, options.clients, 2 * options.spares))
        processes = psutil.Process(fleet.supervisor_pid).children(recursive=True)
    left = sum(process.is_running() for process in processes)
    rows = rows_of(outcomes, options.spares)
    rows.append(Row("processes left at the end", left, "", goal=0))
    print_table(f"{len(points)} losses of a rank under {options.clients} streams", rows)
    write_json(options.json, "rank_points", rows, {"points": [asdict(each) for each in outcomes]})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
