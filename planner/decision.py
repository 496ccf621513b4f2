"""What is to become of the pools of one role: a pure function of what is seen and remembered.

    below its least            grows to it            above its most     shrinks, one by one
    over the target            grows by what the pressure asks for, at most doubling, where it was
                               over for a while, no worker is on its way, and the last change is
                               some time ago; a pool whose workers do not come is passed over,
                               and where there is no other it grows beyond them, so far
    over as before it grew     stays: more workers have not helped
    one worker less is enough  shrinks by one, where that was so for long; first where one is wanted
                               that does not come
    a worker is held, or not   never shrinks: it might lose the one that serves, and keep the other
    seen by any router         (unseen, where it has more than its most)
    else                       stays, and says why

A line grows as long as too few workers serve it, and is there for a while after they are enough: so
nothing is decided while workers start, nor while it gets shorter fast enough.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.planner_options import PlanRules
from cluster.scaling.scaler import PoolState
from planner.memory import Memory, is_over, one_less_is_enough
from planner.pool_limits import PoolLimits
from planner.sight import RoleSight

_IN_WORDS = {
    "wait": "prompts wait {0:.2f} of the TTFT budget before they are computed",
    "inter_token": "decode steps take {0:.2f} of the ITL budget",
    "free_blocks": "free KV blocks will last 1/{0:.2f} of the time that a new worker takes",
}


class Stand(enum.StrEnum):
    """Of a role, in a word for metrics."""

    GROWS = "grows"
    SHRINKS = "shrinks"
    STEADY = "steady"
    """At its target, or too near for a smaller pool."""
    WATCHED = "watched"
    """Over, or calm, and not for long enough yet."""
    CHANGING = "changing"
    """Workers are on their way."""
    RESTING = "resting"
    """The last change is not long enough ago."""
    UNHELPED = "unhelped"
    """Over, as before it last grew for that: more workers do not help."""
    AT_MOST = "at_most"
    """More are needed than it may have."""
    HELD = "held"
    """Less would be enough, and an operator holds a worker of it."""
    UNSEEN = "unseen"
    """It has more than it may, and a ready worker of it is not seen by any router."""
    AT_LEAST = "at_least"
    """Less would be enough, and it keeps as many."""


@dataclass(frozen=True, slots=True)
class PoolVerdict:
    """`why` is a sentence for operators."""

    stand: Stand
    why: str
    pool: str = ""
    """That is to change; empty: none."""
    size_before: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """Of one role, at one moment."""

    sight: RoleSight
    memory: Memory
    """With this look in it."""
    limits: Sequence[PoolLimits]
    """Of its pools that may change, the first to grow first."""
    rules: PlanRules
    now_s: float

    def pools(self) -> Iterator[tuple[PoolState, PoolLimits]]:
        """That may change, in their order."""
        by_name = {pool.name: pool for pool in self.sight.pools}
        for limits in self.limits:
            if (pool := by_name.get(limits.pool)) is not None:
                yield pool, limits


def decide(case: Case) -> PoolVerdict:
    """See the head of the file."""
    verdict = _outside_its_limits(case)
    if verdict is not None:
        return verdict
    if is_over(case.sight, case.rules):
        return _over(case)
    if case.sight.num_held and _would_shrink(case):
        why = f"{in_words(case)}: less is enough, with {_held(case.sight)}"
        return PoolVerdict(Stand.HELD, why)
    if not case.sight.is_seen:
        return _unseen(case)
    if case.memory.calm_since_s is not None:
        return _calm(case)
    return PoolVerdict(Stand.STEADY, f"{in_words(case)}, which is near the target")


def in_words(case: Case) -> str:
    """The pressure, and what it is kept at."""
    pressure = case.sight.pressure
    words = _IN_WORDS.get(pressure.signal, f"the pressure ({pressure.signal}) is {{0:.2f}}")
    return f"{words.format(pressure.ratio)} (target {case.rules.scale_target:g})"


def _outside_its_limits(case: Case) -> PoolVerdict | None:
    rested_s = case.memory.rested_s(case.now_s)
    tried_s = case.memory.tried_s
    may_try = tried_s is None or case.now_s - tried_s >= case.rules.grow_every_s
    for pool, limits in case.pools():
        now = pool.num_wanted
        if now < limits.least and may_try:
            why = f"{pool.name} keeps at least {limits.least}"
            return PoolVerdict(Stand.GROWS, why, pool.name, now, limits.least)
        is_free = _may_shrink(case.sight) and rested_s >= case.rules.shrink_every_s
        if now > limits.most and is_free:
            why = f"{pool.name} may have {limits.most} at most"
            return PoolVerdict(Stand.SHRINKS, why, pool.name, now, now - 1)
    return None


def _may_shrink(sight: RoleSight) -> bool:
    """Whoever leaves is chosen among those that are seen: it might be the only one of them."""
    return sight.is_settled and sight.is_seen and not sight.num_held


def _would_shrink(case: Case) -> bool:
    """If nobody were held."""
    return bool(_beyond_their_most(case)) or one_less_is_enough(case.sight, case.rules)


def _unseen(case: Case) -> PoolVerdict:
    """Not over; whether less would be enough nobody can tell."""
    sight = case.sight
    num_seen = max(0, sight.num_seen - sight.num_held)
    stays = f"none is taken while routers know {num_seen} of {sight.num_ready} ready workers"
    if beyond := _beyond_their_most(case):
        return PoolVerdict(Stand.UNSEEN, f"{', '.join(beyond)}, and {stays}")
    return PoolVerdict(Stand.STEADY, f"{in_words(case)}, and {stays}")


def _beyond_their_most(case: Case) -> list[str]:
    """Pools, each in words."""
    return [
        f"{pool.name} has {pool.num_wanted} and may have {limits.most} at most"
        for pool, limits in case.pools()
        if pool.num_wanted > limits.most
    ]


def _over(case: Case) -> PoolVerdict:
    why_not_yet = _why_not_grown_yet(case)
    if why_not_yet is not None:
        return why_not_yet
    if (unhelped := _unhelped(case)) is not None:
        return unhelped
    sight, rules = case.sight, case.rules
    num_ready = max(1, sight.num_ready)
    needed = math.ceil(num_ready * sight.pressure.ratio / rules.scale_target)
    missing = min(needed - num_ready, num_ready, rules.max_new_workers)
    why = in_words(case)
    open_to_more = [each for each in case.pools() if each[0].num_wanted < each[1].most]
    for pool, limits in open_to_more:
        if pool.is_settled:
            size = min(limits.most, pool.num_wanted + missing)
            return PoolVerdict(Stand.GROWS, why, pool.name, pool.num_wanted, size)
    for pool, limits in open_to_more:
        if (size := _beyond_absent(pool, limits, missing, rules)) > pool.num_wanted:
            why = f"{why}; {_on_their_way(sight)} after {rules.start_patience_s:g} s"
            return PoolVerdict(Stand.GROWS, why, pool.name, pool.num_wanted, size)
    if open_to_more:
        why = f"{why}; {_on_their_way(sight)}, and no others are asked for"
        return PoolVerdict(Stand.CHANGING, why)
    return PoolVerdict(Stand.AT_MOST, f"{why}, and there may be no more than {sight.num_wanted}")


def _beyond_absent(pool: PoolState, limits: PoolLimits, missing: int, rules: PlanRules) -> int:
    """How many a pool is to have, some of whose workers have not come in time: as if it did not
    have those, as far as no more are then absent than may come at once. Where none has come no
    more are asked for."""
    num_absent = max(0, pool.num_wanted - pool.num_ready)
    if not pool.num_ready:
        return 0
    return min(limits.most, pool.num_wanted + min(missing, rules.max_new_workers - num_absent))


def _why_not_grown_yet(case: Case) -> PoolVerdict | None:
    memory, rules, now_s = case.memory, case.rules, case.now_s
    why = in_words(case)
    over_s = now_s - (now_s if memory.over_since_s is None else memory.over_since_s)
    if over_s < rules.grow_after_s:
        return PoolVerdict(Stand.WATCHED, f"{why} for {over_s:.0f} s of {rules.grow_after_s:g}")
    standing_s = now_s - memory.standing_since_s
    if not memory.is_settled and standing_s < rules.start_patience_s:
        return PoolVerdict(Stand.CHANGING, f"{why}; {_on_their_way(case.sight)}")
    if (eased_s := memory.eased_in_s(rules.scale_target)) <= rules.grow_every_s:
        return PoolVerdict(Stand.WATCHED, f"{why}, and will be at the target in {eased_s:.0f} s")
    is_stuck = not memory.is_settled
    rested_s = now_s - (memory.changed_s or -math.inf) if is_stuck else memory.rested_s(now_s)
    if rested_s < rules.grow_every_s:
        rest = f"the last change is {rested_s:.0f} s ago, of {rules.grow_every_s:g} to wait"
        return PoolVerdict(Stand.RESTING, f"{why}; {rest}")
    return None


def _unhelped(case: Case) -> PoolVerdict | None:
    sight = case.sight
    growth = case.memory.growths.get(sight.pressure.signal)
    if growth is None or not growth.has_come(sight.num_ready):
        return None
    return PoolVerdict(
        Stand.UNHELPED,
        f"more workers have not helped: {in_words(case)}, and it was {growth.ratio:.2f} with "
        f"{growth.num_ready} of the {sight.num_ready} workers; it does not grow "
        "for that again until it has changed",
    )


def _calm(case: Case) -> PoolVerdict:
    memory, rules, now_s = case.memory, case.rules, case.now_s
    why = f"{in_words(case)}: one worker less is enough"
    shrinking = [
        pool for pool, limits in case.pools() if pool.num_wanted > limits.least and pool.num_ready
    ]
    if not shrinking:
        return PoolVerdict(Stand.AT_LEAST, f"{why}, and there are as few as may be")
    if not memory.is_settled:
        absent = [pool for pool in shrinking if pool.num_ready < pool.num_wanted]
        if not absent or now_s - memory.standing_since_s < rules.start_patience_s:
            return PoolVerdict(Stand.CHANGING, f"{why}; {_on_their_way(case.sight)}")
        shrinking = absent
    calm_s = now_s - (now_s if memory.calm_since_s is None else memory.calm_since_s)
    if calm_s < rules.shrink_after_s:
        return PoolVerdict(Stand.WATCHED, f"{why} for {calm_s:.0f} s of {rules.shrink_after_s:g}")
    if memory.rested_s(now_s) < rules.shrink_every_s:
        return PoolVerdict(Stand.RESTING, f"{why}; the last change is not long ago")
    last = shrinking[-1]
    return PoolVerdict(Stand.SHRINKS, why, last.name, last.num_wanted, last.num_wanted - 1)


def _on_their_way(sight: RoleSight) -> str:
    problems = "".join(f" ({pool.name}: {pool.problem})" for pool in sight.pools if pool.problem)
    held = f", {sight.num_held} held" if sight.num_held else ""
    return f"{sight.num_ready} of {sight.num_wanted} workers are ready{held}{problems}"


def _held(sight: RoleSight) -> str:
    return (
        f"{sight.num_held} of its workers held (cordoned or drained), and none is taken from "
        "beside those; `splitserve uncordon` gives them back"
    )
