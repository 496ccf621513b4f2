"""What the scheduler is asked: about requests now, or as a step in flight leaves them."""

from __future__ import annotations

from collections.abc import Container
from operator import itemgetter

from cluster.config import EngineOptions
from engine.step.placement import Placement
from engine.step.plan import Budget, RunningView, StepPlan
from engine.step.prompt_scores import limit_scored
from engine.step.request import Request
from engine.step.request_table import RequestTable
from engine.step.scheduler import schedule
from engine.step.sequence import Sequence
from engine.step.step_cost import StepCostMeter
from engine.step.urgency import due_ms


class Planner:
    """From table and pool to a plan. Changes nothing."""

    def __init__(
        self,
        options: EngineOptions,
        table: RequestTable,
        placement: Placement,
        *,
        costs: StepCostMeter,
    ) -> None:
        self._options = options
        self._table = table
        self._placement = placement
        self._costs = costs

    def plan(self) -> StepPlan:
        """The next step, when no other is under way."""
        running = list(self._table.running())
        budget = self._budget(self._table.seats_taken())
        is_tight = len(running) > budget.num_available
        views = [
            self._placement.running_view(r, s, is_tight=is_tight, due_ms=self._due_ms(r, budget))
            for r, s in running
        ]
        return self._schedule(views, budget)

    def plan_after(self, flying: Container[Sequence]) -> StepPlan:
        """The step after one that computes the last known token of each sequence of `flying`.

        Those that surely end with their next token have no part in it; of the others it is assumed
        that they go on. Blocks that come free when the step lands are not counted on.
        """
        running = list(self._table.running())
        staying = [(r, s) for r, s in running if not (s in flying and ends_with_next(r, s))]
        num_ending = len(running) - len(staying)
        budget = self._budget(self._table.seats_taken() - num_ending)
        is_tight = len(staying) > budget.num_available
        views = [
            self._placement.running_view(r, s, is_tight=is_tight, num_ahead=int(s in flying))
            for r, s in staying
        ]
        return self._schedule(views, budget)

    def _budget(self, seats_taken: int) -> Budget:
        return Budget(
            max_batch_tokens=self._options.max_batch_tokens,
            max_num_seqs=self._options.max_num_seqs,
            num_available=self._placement.pool.num_available,
            seats_taken=seats_taken,
            cost=self._costs.cost,
            max_step_ms=self._options.max_step_ms,
        )

    def _schedule(self, views: list[RunningView], budget: Budget) -> StepPlan:
        queued = [(self._due_ms(r, budget), s.key, r, s) for r, s in self._table.waiting()]
        queued.sort(key=itemgetter(0, 1))
        waiting = (self._placement.waiting_view(r, s, due_ms=due) for due, _, r, s in queued)
        plan = schedule(views, waiting, budget)
        if not plan.chunks:
            return plan
        scoring = {s.key for r in self._table for s in r.sequences if s.scores_prompt}
        return limit_scored(plan, scoring) if scoring else plan

    def _due_ms(self, request: Request, budget: Budget) -> float:
        if request.is_open:
            return 0.0  # it decodes, or has done so: nobody goes before it
        return due_ms(
            request.arrived_s * 1e3,
            num_tokens=0 if request.is_remote else request.num_to_compute,
            deadline_ms=request.deadline_s * 1e3,
            cost=budget.cost,
        )


def ends_with_next(request: Request, sequence: Sequence) -> bool:
    """True when the sequence's next token is its last, whatever it is."""
    return sequence.num_generated + 1 >= request.params.max_tokens
