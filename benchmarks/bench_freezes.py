"""Processes that are stopped under load: what their requests see, and whether all comes back.

    python -m benchmarks.bench_freezes [--rounds 20] [--clients 4] [--json PATH]

`splitserve serve` with 2 prefill and 2 decode workers; clients that stream greedy answers, each
compared with the undisturbed one. In every round SIGSTOP goes to the next in turn: the engine
process of a prefill worker, that of a decode worker, both processes of a prefill worker, both of a
decode worker. Two waits of each: on the stopped worker, until somebody took the request from it or
ended it with a typed error (by the fleet's logs); and for a word, of any client whose request was
under way or came until the worker was back. The second has the answer elsewhere in it: its floor is
the longest wait before the first freeze, its goal that much more.

All engines have the same niceness: with their usual one, prefill engines beside other programs'
processes would measure those.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from benchmarks.freeze_round import Freeze, Outcome, freeze_round
from benchmarks.goals import FREEZE_WAIT_S
from benchmarks.local_fleet import LocalFleet, whole_fleet
from benchmarks.report import Row, exit_code, print_table, write_json
from benchmarks.steady_load import SteadyLoad, is_right

FREEZES = [Freeze(role, is_whole) for is_whole in (False, True) for role in ("prefill", "decode")]
WORKERS_PER_ROLE = 2
QUIET_S = 15.0
RESULTS = Path(__file__).parent / "results" / "freezes.json"


async def measure(
    fleet: LocalFleet, rounds: int, num_clients: int
) -> tuple[list[Outcome], list[Row]]:
    """Every round, and what does not belong to one."""
    load = SteadyLoad(fleet.port, num_clients)
    await load.start()
    start_s = time.monotonic()
    await asyncio.sleep(QUIET_S)
    quiet_s = max(answer.longest_wait_s(start_s) for answer in load.answers)
    outcomes = []
    for number in range(rounds):
        freeze = FREEZES[number % len(FREEZES)]
        worker_id = f"{freeze.role}-{number // len(FREEZES) % WORKERS_PER_ROLE}"
        outcomes.append(await freeze_round(fleet, load, freeze, worker_id))
        print(f"  {number + 1:2} {_line(outcomes[-1])}", flush=True)
    await load.stop()
    ended = [answer for answer in load.answers if answer.ended_s is not None]
    wrong = [a for a in ended if not is_right(a, load.expected[a.prompt])]
    print(f"{len(ended)} requests: {dict(Counter(a.error or 'answered' for a in ended))}")
    for answer in wrong[:5]:
        print(f"  wrong: {answer.error} {answer.text!r}, not {load.expected[answer.prompt]!r}")
    rows = wait_rows(outcomes, quiet_s)
    return outcomes, [*rows, Row("wrong answers", len(wrong), "answers", goal=0)]


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.freeze:24} {outcome.worker_id:10} on it {_seconds(outcome.longest_wait_on_it_s)}"
        f", for a word {outcome.longest_wait_s:.2f} s, "
        f"{outcome.wait_ended_with}; {outcome.num_answered} answered, errors {outcome.errors} "
        f"({outcome.num_errors_without_token} without a token), {outcome.num_wrong} wrong; "
        f"ready after {_seconds(outcome.back_s)}, answers after "
        f"{_seconds(outcome.answers_again_s)}; blocks {'' if outcome.are_blocks_back else 'NOT '}"
        f"back, {outcome.num_processes_left} processes left"
    )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def wait_rows(outcomes: Sequence[Outcome], quiet_s: float) -> list[Row]:
    """For each kind of freeze the worst of its rounds."""
    rows = []
    for name in sorted({outcome.freeze for outcome in outcomes}):
        here = [outcome for outcome in outcomes if outcome.freeze == name]
        on_it = [o.longest_wait_on_it_s for o in here if o.longest_wait_on_it_s is not None]
        words = [outcome.longest_wait_s for outcome in here]
        rows += [
            worst_row(f"{name}: wait on it", on_it, None, FREEZE_WAIT_S),
            worst_row(f"{name}: wait for a word", words, quiet_s, quiet_s + FREEZE_WAIT_S),
        ]
    return rows


def worst_row(name: str, waits: Sequence[float], floor_s: float | None, goal_s: float) -> Row:
    """The longest, in seconds; 0 when there was none."""
    longest_s = max(waits, default=0.0)
    return Row(name, longest_s, "s", floor_s, goal_s, (min(waits, default=0.0), longest_s))


def count_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """What must never happen, over all rounds."""
    back = [outcome.answers_again_s for outcome in outcomes if outcome.answers_again_s is not None]

    def number_of(name: str, unit: str, is_bad: Callable[[Outcome], int]) -> Row:
        return Row(name, sum(is_bad(outcome) for outcome in outcomes), unit, goal=0)

    return [
        number_of("errors without a token", "requests", lambda o: o.num_errors_without_token),
        number_of("workers that did not answer again", "rounds", lambda o: not o.answers_again_s),
        number_of("blocks not back", "rounds", lambda o: not o.are_blocks_back),
        number_of("stopped processes left", "processes", lambda o: o.num_processes_left),
        Row(
            "freeze to the new process's first answer",
            max(back, default=0.0),
            "s",
            spread=(min(back, default=0.0), max(back, default=0.0)),
        ),
    ]


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    workers = str(WORKERS_PER_ROLE)
    flags = ("--prefill", workers, "--decode", workers, "--niceness", "1")
    with whole_fleet(*flags, num_workers=2 * WORKERS_PER_ROLE) as fleet:
        outcomes, rows = asyncio.run(measure(fleet, options.rounds, options.clients))
        processes = psutil.Process(fleet.supervisor_pid).children(recursive=True)
    left = sum(process.is_running() for process in processes)
    rows += [*count_rows(outcomes), Row("processes left at the end", left, "processes", goal=0)]
    print_table(f"{options.rounds} freezes under {options.clients} streams", rows)
    write_json(options.json, "freezes", rows, {"rounds": [asdict(item) for item in outcomes]})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
