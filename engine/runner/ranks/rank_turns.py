"""What a rank does with what it is told, one message after the other."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from cluster.deadline import Clock
from engine.model.adapters import words
from engine.model.adapters.rank_adapters import RankAdapters
from engine.model.experts.rank_experts import RankExperts
from engine.model.experts.words import unpack
from engine.runner.model_runner import ModelRunner
from engine.runner.ranks.step_message import StepReader
from ranks.collectives.group_collective import GroupCollective, gathered
from ranks.line import RankExtension
from ranks.plans.plan import MAX_IDLE_S, PlanKind, PlanReader, RankPlan
from ranks.reports import PartLoaded, Progress

_BUSY_S = 0.001
"""Reads are in flight: their completion is noticed by polling."""


class RankTurns:
    """Of one rank that has loaded its part."""

    def __init__(
        self,
        plans: PlanReader,
        collective: GroupCollective,
        runner: ModelRunner,
        *,
        extension: RankExtension,
        experts: RankExperts,
        adapters: RankAdapters | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`runner` computes the own part."""
        self._plans, self._collective, self._runner = plans, collective, runner
        self._extension, self._experts, self._adapters = extension, experts, adapters
        self._steps = StepReader()
        self._clock, self._stepped_s = clock, 0.0

    def take(self) -> bool:
        """The next message, or a short wait in vain; False once it was STOP."""
        patience_s = _BUSY_S if self._extension.busy else MAX_IDLE_S
        met = self._collective
        plan = self._plans.next(
            patience_s, waited_s=met.waited_s, called_s=met.called_s, stepped_s=self._stepped_s
        )
        return plan is None or self._do(plan)

    def _do(self, plan: RankPlan) -> bool:
        if plan.kind is PlanKind.STEP:
            self._compute(plan.body)
        elif plan.kind is PlanKind.WORD:
            self._extension.handle(bytes(plan.body))
        elif plan.kind is PlanKind.EXPERTS:
            self._experts.follow(unpack(bytes(plan.body)))
        elif plan.kind is PlanKind.ADAPTERS and self._adapters is not None:
            self._adapters.follow(words.unpack(bytes(plan.body)))
        return plan.kind is not PlanKind.STOP

    def _compute(self, body: memoryview) -> None:
        batch, copies = self._steps.read(body)
        began_s = self._clock()
        self._runner.copy_blocks(copies)
        self._runner.forward(batch)
        self._stepped_s += self._clock() - began_s


class LoadingTogether:
    """LoadedTogether of a rank that is not the conductor."""

    def __init__(
        self,
        collective: GroupCollective,
        *,
        limit_s: float,
        tell: Callable[[PartLoaded | Progress], None],
    ) -> None:
        """`limit_s`: for the slowest of the others to load, or to compile. The conductor, which
        `tell` reaches, hears of their progress, and ends the group sooner where there is none."""
        self._collective, self._limit_s, self._tell = collective, limit_s, tell

    def meet(self) -> None:
        """See LoadedTogether."""
        self._tell(Progress(phase="wait for the other ranks", fraction=0.0))
        self._tell(PartLoaded())
        self._collective.meet(self._limit_s)

    def least(self, number: int, device: torch.device) -> int:
        """See LoadedTogether."""
        return int(gathered(self._collective, torch.tensor([[number]], device=device)).min())

    def settle(self) -> None:
        """See LoadedTogether."""
        self._collective.wait_until_landed(self._limit_s)
