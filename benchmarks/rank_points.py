"""One rank lost at one point of a request's life, under load, and what becomes of everything.

load runs -> a request of it is watched to its point -> SIGKILL or SIGSTOP -> another worker serves
  -> the load pauses -> every block is back, every process of the lost group is gone
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from benchmarks.fleet_state import is_quiet, is_replaced, is_there, seconds_until, state_of
from benchmarks.local_fleet import LocalFleet
from benchmarks.steady_load import MAX_TOKENS, Answer, SteadyLoad, is_right
from cli.fleet_status import MemberStatus

BACK_TIMEOUT_S, QUIET_TIMEOUT_S = 180.0, 90.0
NUM_POINTS = 20
_LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Point:
    """Where in a request's life a rank of which pool is hurt."""

    pool: str
    how: signal.Signals
    rank: int
    share_of_ttft: float | None = None
    """Before the first token: so far into the usual time to it."""
    num_pieces: int | None = None
    """After so many pieces of text have come; of neither: with no request at all."""

    def __str__(self) -> str:
        where = "idle"
        if self.share_of_ttft is not None:
            where = f"{self.share_of_ttft:.0%} of TTFT"
        elif self.num_pieces is not None:
            where = f"after {self.num_pieces}"
        return f"{self.pool:7} rank {self.rank} {self.how.name} {where}"


@dataclass(slots=True)
class Outcome:
    """What one loss led to. None: it did not happen in time."""

    point: str
    replaced_s: float | None = None
    """Until another process of the pool is ready, by the router's word."""
    serving_s: float | None = None
    """Until a request that was sent after the loss has its first token: a client asks again once
    the one it has is over, which is at once where the loss has ended it."""
    num_answered: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    num_wrong: int = 0
    """With a token that is not the undisturbed one's, or an end without a typed error."""
    are_blocks_back: bool = False
    num_processes_left: int = 0
    names_left: list[str] = field(default_factory=list)
    """In shared memory."""


def points_of(pool: str, num_points: int, num_ranks: int) -> list[Point]:
    """Of 20 over a whole life, so many, evenly; kills and stops in turn, and ranks two by two."""
    places: list[tuple[float | None, int | None]] = [(number / 9, None) for number in range(9)]
    places += [(None, 1 + number * (MAX_TOKENS // 10)) for number in range(NUM_POINTS - 10)]
    places.append((None, None))
    chosen = [places[number * NUM_POINTS // num_points] for number in range(num_points)]
    return [
        Point(pool, (signal.SIGKILL, signal.SIGSTOP)[number % 2], number // 2 % num_ranks, *place)
        for number, place in enumerate(chosen)
    ]


async def lose_at(
    fleet: LocalFleet, load: SteadyLoad, point: Point, ttft_s: float, num_spares: int
) -> Outcome:
    """The load is running before and after; `ttft_s` is the usual one. Returns once as many spares
    as there should be are loaded again."""
    outcome = Outcome(str(point))
    victim = await _in_place(fleet, point.pool)
    lost = [psutil.Process(pid) for pid in (victim.pid, *(each.pid for each in victim.ranks))]
    names = _names()
    await _reach(load, point, ttft_s)
    os.kill(victim.ranks[point.rank].pid, point.how)
    hurt_s = time.monotonic()
    load.resume()
    outcome.replaced_s = await seconds_until(lambda: is_replaced(fleet, victim), BACK_TIMEOUT_S)
    outcome.serving_s = await _first_token_s(load, hurt_s)
    load.pause()
    quiet_s = await seconds_until(lambda: is_quiet(fleet), QUIET_TIMEOUT_S)
    outcome.are_blocks_back = quiet_s is not None
    await seconds_until(lambda: _has_spares(fleet, num_spares), BACK_TIMEOUT_S)
    outcome.num_processes_left = sum(map(is_there, lost))
    outcome.names_left = sorted(_names() - names)
    _judge(outcome, load, load.since(hurt_s))
    load.resume()
    return outcome


def _judge(outcome: Outcome, load: SteadyLoad, met: Sequence[Answer]) -> None:
    outcome.num_answered = sum(not answer.error for answer in met)
    outcome.errors = dict(Counter(answer.error for answer in met if answer.error))
    outcome.num_wrong = sum(
        answer.ended_s is None or not is_right(answer, load.expected[answer.prompt])
        for answer in met
    )


async def _in_place(fleet: LocalFleet, pool: str) -> MemberStatus:
    members = (await state_of(fleet)).members
    return next(m for m in members if m.role == pool and m.router_state == "ready")


async def _reach(load: SteadyLoad, point: Point, ttft_s: float) -> None:
    """Watches the next request of the load; for an idle fleet, none."""
    if point.share_of_ttft is None and point.num_pieces is None:
        load.pause()
        while load.since(time.monotonic()):
            await asyncio.sleep(_LOOK_S)
        return
    num_sent = len(load.answers)
    while len(load.answers) == num_sent:
        await asyncio.sleep(_LOOK_S)
    watched = load.answers[num_sent]
    while watched.ended_s is None and not _is_at(watched, point, ttft_s):
        await asyncio.sleep(_LOOK_S)


def _is_at(watched: Answer, point: Point, ttft_s: float) -> bool:
    if point.num_pieces is not None:
        return len(watched.arrivals_s) >= point.num_pieces
    assert point.share_of_ttft is not None
    return time.monotonic() >= watched.sent_s + point.share_of_ttft * ttft_s


async def _first_token_s(load: SteadyLoad, hurt_s: float) -> float | None:
    async def has_come() -> bool:
        return any(answer.arrivals_s for answer in load.answers if answer.sent_s > hurt_s)

    await seconds_until(has_come, BACK_TIMEOUT_S)
    firsts = [a.arrivals_s[0] for a in load.answers if a.sent_s > hurt_s and a.arrivals_s]
    return min(firsts) - hurt_s if firsts else None


async def _has_spares(fleet: LocalFleet, num_spares: int) -> bool:
    return len((await state_of(fleet)).spares) >= num_spares


def _names() -> set[str]:
    return set(os.listdir("/dev/shm"))
