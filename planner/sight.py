"""What a planner sees of a fleet: its routers' pressures, what is held in it, and its pools' sizes.

Of several routers the one under most pressure counts: each has a line of its own, and all send to
the same workers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.deadline import Clock
from cluster.dial.dialer import OperatorLink
from cluster.scaling.scaler import PoolState, Scaler
from planner.routers import Routers
from planner.work_shares import WorkShares
from protos.fleet_watch_pb2 import PressureResponse
from protos.membership_pb2 import MembersResponse, MemberState

LIMIT_S = 5.0
"""For one router to answer."""
HIGHEST = 1000.0
"""Of a pressure: more is no more."""


@dataclass(frozen=True, slots=True)
class HighestSignal:
    """The highest of a role's signals; 1: at its budget."""

    signal: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSight:
    """All workers of one role."""

    role: str
    pools: tuple[PoolState, ...]
    pressure: HighestSignal
    num_seen: int
    """Workers that a router knows, whatever they do."""
    num_in_line: int
    """Requests that wait in the routers, for whichever role."""
    busy_share: float
    """Of its KV blocks, or of its places for sequences: that which is nearer to its end. What is
    cached counts as free."""
    work_share: float
    """Of its workers' time of late, computing prompts. Time of decode steps says nothing: they take
    as long for a few sequences as for many, nearly, and follow each other without a pause."""
    num_held: int = 0
    """Of `num_seen`, those that an operator has cordoned or drained."""

    @property
    def num_ready(self) -> int:
        """Workers that take requests: a held one is a ready process, and takes none."""
        return max(0, sum(pool.num_ready for pool in self.pools) - self.num_held)

    @property
    def num_wanted(self) -> int:
        return sum(pool.num_wanted for pool in self.pools)

    @property
    def is_seen(self) -> bool:
        """Routers know all that are ready: else nobody can tell what the others do."""
        return self.num_seen - self.num_held >= self.num_ready

    @property
    def is_settled(self) -> bool:
        """Every pool is what is wanted."""
        return all(pool.is_settled for pool in self.pools)


@dataclass(frozen=True, slots=True)
class FleetSight:
    """By role."""

    roles: Mapping[str, RoleSight]
    members: Sequence[MemberState]


@dataclass(frozen=True, slots=True)
class _RouterWord:
    members: MembersResponse
    pressure: PressureResponse


class FleetEyes:
    """From one event loop."""

    def __init__(self, routers: Routers, scaler: Scaler, clock: Clock) -> None:
        self._routers = routers
        self._scaler = scaler
        self._work = WorkShares(clock)

    async def look(self) -> FleetSight:
        """Raises WorkerLost where no router answers, and what the scaler's `pools` raises."""
        words, pools = await asyncio.gather(self._routers.each(_asked), self._scaler.pools())
        answers = [word.members for word in words]
        shares = self._work.after(_fullest(answers))
        return sight_of(answers, [word.pressure for word in words], pools, shares)


async def _asked(router: OperatorLink) -> _RouterWord:
    members, pressure = await asyncio.gather(
        router.members(timeout_s=LIMIT_S), router.pressure(timeout_s=LIMIT_S)
    )
    return _RouterWord(members, pressure)


def sight_of(
    answers: Sequence[MembersResponse],
    pressures: Iterable[PressureResponse],
    pools: Iterable[PoolState],
    work_shares: Mapping[str, float],
) -> FleetSight:
    """Of what each router has answered, one at least. `work_shares`: by role."""
    worst: dict[str, HighestSignal] = {}
    for each in (each for answer in pressures for each in answer.pressures):
        found = HighestSignal(each.signal, _bounded(each.ratio))
        if each.role not in worst or found.ratio > worst[each.role].ratio:
            worst[each.role] = found
    by_role: dict[str, list[PoolState]] = {}
    for pool in pools:
        by_role.setdefault(pool.role or pool.name, []).append(pool)
    num_in_line = sum(answer.num_queued for answer in answers)
    members = _fullest(answers)
    held = _held(answers)
    roles = {
        role: RoleSight(
            role=role,
            pools=tuple(of_role),
            pressure=worst.get(role, HighestSignal("", 0.0)),
            num_seen=sum(state.member.role == role for state in members),
            num_in_line=num_in_line,
            busy_share=_busy_share((s for s in members if s.member.role == role), held),
            work_share=work_shares.get(role, 0.0),
            num_held=sum(s.member.role == role and _id(s) in held for s in members),
        )
        for role, of_role in by_role.items()
    }
    return FleetSight(roles, members)


def _fullest(answers: Sequence[MembersResponse]) -> list[MemberState]:
    """What the router says that knows most workers: one that was just started knows none yet."""
    return list(max(answers, key=lambda answer: len(answer.members)).members)


def _bounded(ratio: float) -> float:
    return HIGHEST if math.isnan(ratio) else min(HIGHEST, max(0.0, ratio))


def _held(answers: Iterable[MembersResponse]) -> frozenset[str]:
    """Who is held by one router at least: the others may not have heard of it yet."""
    return frozenset(_id(each) for answer in answers for each in answer.members if each.hold)


def _id(state: MemberState) -> str:
    return state.member.worker_id


def _busy_share(states: Iterable[MemberState], held: frozenset[str]) -> float:
    """Who is held has no room for anybody, and what it has is to fit at the others."""
    blocks, busy_blocks, places, busy_places = 0, 0, 0, 0
    for state in states:
        load, has_room = state.load, _id(state) not in held
        blocks += load.total_blocks if has_room else 0
        busy_blocks += max(0, load.total_blocks - load.free_blocks - load.cached_blocks)
        places += state.member.max_num_seqs if has_room else 0
        busy_places += load.num_running if state.member.max_num_seqs else 0
    return max(busy_blocks / blocks if blocks else 0.0, busy_places / places if places else 0.0)
