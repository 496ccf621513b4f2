"""How near each pool is to too few workers: what pools are scaled by.

    0 idle | 1 at its budget | above 1 late

All of it leads what clients see: a line that grows, steps that get longer, blocks that will not
last until another worker is there. KV use alone is none of it: a full cache is a good cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from cluster.common_options import BudgetOptions
from cluster.deadline import Clock
from cluster.identity import Role, WorkerKey
from router.control.runway import Runway
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.need import Need
from router.pricing.estimates import Estimates
from router.telemetry.pressure_metrics import Pressure


class PoolPressure:
    """Of one router's fleet; asked with every scrape."""

    def __init__(
        self,
        fleet: Fleet,
        estimates: Estimates,
        line_s: Callable[[], float],
        budgets: BudgetOptions,
        clock: Clock,
        pooled_line_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`line_s`: how long the router's line is, in time; `pooled_line_s`: that of prompts which
        prefill workers answer."""
        self._pooled_line_s = pooled_line_s
        self._fleet = fleet
        self._estimates = estimates
        self._line_s = line_s
        self._budgets = budgets
        self._runway = Runway[WorkerKey](clock)

    def now(self) -> Iterator[Pressure]:
        """All of it; a role without workers has its wait alone."""
        prefill, decode = (self._fleet.with_role(role) for role in (Role.PREFILL, Role.DECODE))
        at_work = [_at_work(members) for members in (prefill, decode)]
        in_line = 1000 * self._line_s() / self._budgets.ttft_budget_ms
        is_for_decode = not prefill or not any(self._has_room(item) for item in decode)
        of_prompts = self._of_prompts(at_work[0]) + (0.0 if is_for_decode else in_line)
        of_prompts += 1000 * self._pooled_line_s() / self._budgets.ttft_budget_ms
        yield Pressure(Role.PREFILL.value, "wait", of_prompts)
        yield Pressure(Role.DECODE.value, "wait", in_line if is_for_decode else 0.0)
        yield Pressure(Role.DECODE.value, "inter_token", self._of_steps(at_work[1]))
        yield Pressure(Role.DECODE.value, "free_blocks", self._of_blocks(decode))

    def _of_prompts(self, members: Sequence[FleetMember]) -> float:
        """What they were given to compute, on average."""
        waits_ms = [self._prompts_ms(item) for item in members]
        return fmean(waits_ms) / self._budgets.ttft_budget_ms if waits_ms else 0.0

    def _prompts_ms(self, item: FleetMember) -> float:
        num_tokens = item.pending_prefill_tokens + item.elsewhere.prefill_tokens
        return self._estimates.prefill.speed_of(item.key).of(num_tokens) if num_tokens else 0.0

    def _of_steps(self, members: Sequence[FleetMember]) -> float:
        """Who decodes nothing has no steps."""
        steps_ms = [i.load.decode_step_ms if i.load.num_running else 0.0 for i in members]
        return fmean(steps_ms) / self._budgets.itl_budget_ms if steps_ms else 0.0

    def _of_blocks(self, members: Sequence[FleetMember]) -> float:
        """Tokens that fit, what is cached counting as free: it goes when it has to. Nobody may have
        those of a worker that is left; what its streams give back there they take elsewhere."""
        free: dict[bool, dict[WorkerKey, float]] = {True: {}, False: {}}
        for item in members:
            is_open = not (item.state.draining or item.hold.is_on)
            free[is_open][item.key] = float(item.free_tokens or 0)
        left_s = self._runway.left_s(free[True], free[False])
        return self._budgets.scale_notice_s / left_s if members else 0.0

    def _has_room(self, item: FleetMember) -> bool:
        """For one more, whose answer is as long as answers get."""
        usual = Need(answer_tokens=int(self._estimates.completion_tokens))
        return item.takes_work and item.room.has(usual)


def _at_work(members: Sequence[FleetMember]) -> Sequence[FleetMember]:
    """Those who share what comes: who is left, held or cut off bears none of it. Without any, who
    is there."""
    return [item for item in members if item.takes_work] or members
