"""One freeze: a worker's processes are stopped under load, and what becomes of everything.

load runs, the victim is at work -> SIGSTOP -> another process in its place, ready
  -> that one has answered -> the load pauses -> every block is back, the old processes are gone
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psutil

from benchmarks.fleet_state import (
    is_quiet,
    is_replaced,
    is_there,
    seconds_until,
    state_of,
)
from benchmarks.freeze_logs import longest_wait_on_worker_s
from benchmarks.local_fleet import LocalFleet
from benchmarks.steady_load import Answer, SteadyLoad, is_right
from cli.fleet_status import MemberStatus

BUSY_TIMEOUT_S, BACK_TIMEOUT_S, QUIET_TIMEOUT_S = 60.0, 180.0, 90.0
LONGEST_WORK_S = 2.5
"""Before the freeze: by chance it meets prompts, transfers or streams."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Who is stopped: the engine process alone, or the worker's server with it."""

    role: str
    is_whole: bool

    def __str__(self) -> str:
        return f"{self.role}, {'both processes' if self.is_whole else 'engine alone'}"


@dataclass(slots=True)
class Outcome:
    """What one freeze led to. None: it did not happen in time."""

    freeze: str
    worker_id: str
    longest_wait_on_it_s: float | None = None
    """Until a request was taken from the stopped worker, or ended; None: none was on it."""
    longest_wait_s: float = 0.0
    """For a word, of any request that ran during the freeze or came before the worker was back."""
    wait_ended_with: str = ""
    """How the request that waited longest went on: answered, or the code of its error."""
    num_answered: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    num_errors_without_token: int = 0
    num_wrong: int = 0
    back_s: float | None = None
    answers_again_s: float | None = None
    """From the freeze to the end of the first request that the new process answered."""
    are_blocks_back: bool = False
    num_processes_left: int = 0


async def freeze_round(
    fleet: LocalFleet, load: SteadyLoad, freeze: Freeze, worker_id: str
) -> Outcome:
    """The load is running before and after."""
    outcome = Outcome(str(freeze), worker_id)
    await _at_work(fleet, worker_id)
    await asyncio.sleep(random.uniform(0.0, LONGEST_WORK_S))
    victim = await _at_work(fleet, worker_id)
    processes = [psutil.Process(pid) for pid in (victim.pid, victim.engine_pid)]
    for process in processes if freeze.is_whole else processes[1:]:
        os.kill(process.pid, signal.SIGSTOP)
    frozen_s, frozen = time.monotonic(), datetime.now(UTC)
    outcome.back_s = await seconds_until(
        lambda: is_replaced(fleet, victim, by=worker_id), BACK_TIMEOUT_S
    )
    back_s = time.monotonic()
    if outcome.back_s is not None:
        outcome.answers_again_s = await _first_answer_s(load, victim, frozen_s, back_s)
    load.pause()
    quiet_s = await seconds_until(lambda: is_quiet(fleet), QUIET_TIMEOUT_S)
    outcome.are_blocks_back = quiet_s is not None
    outcome.num_processes_left = sum(is_there(process) for process in processes)
    met = [answer for answer in load.since(frozen_s) if answer.sent_s < back_s]
    _judge(outcome, load, met, frozen_s)
    outcome.longest_wait_on_it_s = longest_wait_on_worker_s(fleet.log_dir, worker_id, frozen)
    load.resume()
    return outcome


def _judge(outcome: Outcome, load: SteadyLoad, met: list[Answer], frozen_s: float) -> None:
    """Fills in what the requests say that met the freeze."""
    outcome.num_answered = sum(not answer.error for answer in met)
    outcome.errors = dict(Counter(answer.error for answer in met if answer.error))
    outcome.num_errors_without_token = sum(bool(a.error) and not a.text for a in met)
    outcome.num_wrong = sum(not is_right(a, load.expected[a.prompt]) for a in met)
    if met:
        longest = max(met, key=lambda answer: answer.longest_wait_s(frozen_s))
        outcome.longest_wait_s = longest.longest_wait_s(frozen_s)
        outcome.wait_ended_with = longest.error or "answered"


async def _at_work(fleet: LocalFleet, worker_id: str) -> MemberStatus:
    """The worker, while requests are on it; after a time whether or not."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        member = next(m for m in (await state_of(fleet)).members if m.worker_id == worker_id)
        load = member.load
        if load.num_running or load.num_waiting or time.monotonic() > deadline_s:
            return member
        await asyncio.sleep(0.01)


async def _first_answer_s(
    load: SteadyLoad, victim: MemberStatus, frozen_s: float, back_s: float
) -> float | None:
    """From the freeze to the end of the first request, sent since `back_s`, that the worker took
    part in; None when there was none in time."""

    async def has_answered() -> bool:
        return any(
            victim.worker_id in (answer.prefill_worker, answer.decode_worker)
            for answer in load.answers
            if answer.sent_s > back_s
        )

    waited_s = await seconds_until(has_answered, BACK_TIMEOUT_S)
    return None if waited_s is None else back_s + waited_s - frozen_s
