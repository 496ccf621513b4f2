"""Fleets as a planner sees them, in few words."""

from __future__ import annotations

from cluster.planner_options import PlanRules
from cluster.scaling.scaler import PoolState
from planner.decision import Case, PoolVerdict, decide
from planner.memory import Memory
from planner.pool_limits import PoolLimits
from planner.sight import HighestSignal, RoleSight

RULES = PlanRules()
LIMITS = (PoolLimits("prefill", 1, 8),)
LONG_S = 10_000.0
LOOK_S = RULES.look_interval_s


def pool(name: str = "prefill", wanted: int = 2, ready: int | None = None) -> PoolState:
    ready = wanted if ready is None else ready
    return PoolState(
        name=name, num_wanted=wanted, num_present=wanted, num_ready=ready, generation=1
    )


def sight(
    ratio: float,
    *pools: PoolState,
    in_line: int = 0,
    busy: float = 0.0,
    work: float = 0.0,
    signal: str = "wait",
    num_seen: int = 64,
    held: int = 0,
) -> RoleSight:
    """Of prefill workers; without pools of two in one."""
    return RoleSight(
        role="prefill",
        pools=pools or (pool(),),
        pressure=HighestSignal(signal, ratio),
        num_seen=num_seen,
        num_in_line=in_line,
        busy_share=busy,
        work_share=work,
        num_held=held,
    )


def seen_for(
    seconds: float, seen: RoleSight, memory: Memory | None = None, *, until_s: float = LONG_S
) -> Memory:
    """After looks that long, all alike."""
    memory = memory or Memory()
    num_looks = int(seconds / LOOK_S)
    for turn in range(num_looks, -1, -1):
        memory = memory.after(seen, RULES, until_s - turn * LOOK_S)
    return memory


def verdict(
    seen: RoleSight, for_s: float, limits: tuple[PoolLimits, ...] = LIMITS, **memory: object
) -> PoolVerdict:
    """Of a role that looked like this for so long."""
    remembered = seen_for(for_s, seen, Memory(**memory) if memory else None)  # type: ignore[arg-type]
    return decide(Case(seen, remembered, limits, RULES, LONG_S))
