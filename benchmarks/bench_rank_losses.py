"""A rank killed or stopped at many points of its requests' lives: how soon it is noticed, and how
soon a new group serves.

    python -m benchmarks.bench_rank_losses [--points 20] [--ranks 2] [--rounds 3] [--json PATH]

In turn SIGKILL and SIGSTOP, in a step and between two, while four requests are prefilled and
decoded. Every token that came before the loss is compared with an unhurt run's; a process or a
descriptor that is left afterwards, a wrong token or a wait without end is exit code 1. No server:
the time to the next group's first token is that of the ranks and of weights from the page cache.
Then a whole fleet of one such worker, and the time in which it answers nobody: without a spare
worker and with one. `benchmarks.bench_rank_points` has both pools, through the router.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.bench_ranks import RANK_MODULE, spec_of
from benchmarks.goals import SPARE_SERVES_S
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from benchmarks.serving_again import serving_again_s
from cluster.errors import RankLost
from engine.contract.commands import Submit
from engine.contract.spec import EngineSpec
from engine.model.load_phases import silent
from engine.offline.queue import Completion, collect
from engine.offline.replica import greedy_request
from engine.process.load_ranks import load_group
from engine.step.engine import Engine
from ranks.launch import RankLaunch
from ranks.processes import LocalRank, ProcessSpawner

KILLED_GOAL_MS, STOPPED_GOAL_MS = 500.0, 2000.0
NUM_REQUESTS, PROMPT_TOKENS, NEW_TOKENS = 4, 200, 24
LAST_STEP = 24


class SeenSpawner(ProcessSpawner):
    """Remembers what it has started."""

    def __init__(self) -> None:
        super().__init__(RANK_MODULE)
        self.ranks: dict[int, LocalRank] = {}

    def start(self, launch: RankLaunch) -> LocalRank:
        """See Spawner."""
        self.ranks[launch.rank] = rank = super().start(launch)
        return rank


@dataclass(frozen=True, slots=True)
class Point:
    """Where a rank is hurt."""

    how: signal.Signals
    before_step: int
    is_idle: bool
    """After the last request, with no step to come."""


@dataclass(slots=True)
class Outcome:
    """Of one life of a group."""

    tokens: list[list[int]]
    start_ms: float
    """From nothing to the first token."""
    notice_ms: float = 0.0
    lost: RankLost | None = None


def one_life(spec: EngineSpec, point: Point | None) -> Outcome:
    """Serves until the requests are done, or the group is lost."""
    spawner, began = SeenSpawner(), time.perf_counter()
    replica = load_group(spec, silent, spawner)
    assert replica.others is not None
    with contextlib.closing(replica.others) as others:
        engine = Engine(replica, spec.options)
        outcome = Outcome([], 0.0)
        completions = submitted(engine)
        hurt_at = 0.0
        try:
            for step in range(10_000):
                if point is not None and not point.is_idle and step == point.before_step:
                    hurt_at = hurt(spawner, point.how)
                collect(engine.step(), completions)
                outcome.start_ms = outcome.start_ms or first_ms(completions, began)
                if all(each.ended is not None for each in completions.values()):
                    break
            if point is not None and point.is_idle:
                hurt_at = hurt(spawner, point.how)
                while time.perf_counter() - hurt_at < 60:
                    others.check()
        except RankLost as lost:
            outcome.notice_ms, outcome.lost = (time.perf_counter() - hurt_at) * 1e3, lost
        outcome.tokens = [each.token_ids() for each in completions.values()]
    return outcome


def submitted(engine: Engine) -> dict[str, Completion]:
    """All requests at once."""
    rng = random.Random(3)
    completions: dict[str, Completion] = {}
    for number in range(NUM_REQUESTS):
        prompt = [rng.randrange(1000, 40_000) for _ in range(PROMPT_TOKENS)]
        request = greedy_request(f"r{number}", prompt, NEW_TOKENS)
        completions[request.request_id] = Completion()
        engine.apply(Submit(request))
    return completions


def first_ms(completions: dict[str, Completion], began: float) -> float:
    """Until now, once there is a token."""
    has_one = any(each.tokens for each in completions.values())
    return (time.perf_counter() - began) * 1e3 if has_one else 0.0


def hurt(spawner: SeenSpawner, how: signal.Signals) -> float:
    """The last rank; when."""
    os.kill(spawner.ranks[max(spawner.ranks)].pid, how)
    return time.perf_counter()


def faults_of(
    outcome: Outcome, point: Point, expected: Sequence[list[int]], rank: int
) -> list[str]:
    """In words; none is good."""
    found = []
    if outcome.lost is None or outcome.lost.ranks != (rank,):
        found.append(f"{point}: lost {outcome.lost}")
    for tokens, whole in zip(outcome.tokens, expected, strict=True):
        if tokens != whole[: len(tokens)]:
            found.append(f"{point}: a wrong token")
    found += [f"{point}: {child} is left" for child in psutil.Process().children()]
    held = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    found += [f"{point}: {name} is left" for name in held if "splitserve-" in name]
    return found


def fleet_rows(model: str, num_ranks: int, rounds: int) -> list[Row]:
    """A fleet without a spare worker and one with it."""
    found = []
    for num_spares, words, goal in ((0, "no spare", None), (1, "a warm spare", SPARE_SERVES_S)):
        waits = serving_again_s(model, num_ranks, num_spares=num_spares, rounds=rounds)
        name = f"a fleet with {words}: until it serves again"
        found.append(median_row(name, waits, "s", None, goal))
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="of a whole fleet, each way")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    spec = spec_of(options.model, options.ranks, options.ranks)
    expected = one_life(spec, None).tokens
    rng = random.Random(1)
    notices: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGSTOP: []}
    starts, faults = [], []
    for number in range(options.points):
        how = (signal.SIGKILL, signal.SIGSTOP)[number % 2]
        point = Point(how, rng.randrange(1, LAST_STEP), is_idle=number % 5 == 4)
        outcome = one_life(spec, point)
        faults += faults_of(outcome, point, expected, options.ranks - 1)
        notices[how].append(outcome.notice_ms)
        starts += [outcome.start_ms] if outcome.start_ms else []
    killed, stopped = notices[signal.SIGKILL], notices[signal.SIGSTOP]
    rows = [
        median_row("killed: until it is known", killed, "ms", None, KILLED_GOAL_MS),
        median_row("stopped: until it is known", stopped, "ms", None, STOPPED_GOAL_MS),
        median_row("from nothing to the next group's first token", starts, "ms"),
        Row("wrong tokens, ranks or files left", len(faults), "", None, 0),
        *fleet_rows(options.model, options.ranks, options.rounds),
    ]
    print("\n".join(faults))
    print_table(f"losses of a rank of {options.ranks}, {options.points} points", rows)
    write_json(options.json, "rank_losses", rows, {"load_before": load_before})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
