"""A request whose two attempts run against each other: the winner gets what is the request's."""

from __future__ import annotations

from cluster.errors import SplitserveError
from cluster.identity import WorkerKey
from router.dispatch.journey import Journey
from router.dispatch.stream import PromptCost
from router.dispatch.tied import Attempt, Racing
from router.telemetry.decisions import DecisionLog
from router.telemetry.metrics import RouterMetrics


class Race(Racing):
    """Of one journey."""

    def __init__(self, journey: Journey, decisions: DecisionLog, metrics: RouterMetrics) -> None:
        self._journey = journey
        self._decisions = decisions
        self._metrics = metrics

    def computed(self, cost: PromptCost) -> None:
        """See RunFollower."""
        self._journey.computed(cost)

    def searched(self, num_tokens: int) -> None:
        """See RunFollower."""
        self._journey.searched(num_tokens)

    def has_tokens(self) -> None:
        """See RunFollower."""
        self._journey.has_tokens()

    def ended(self, error: SplitserveError | None) -> None:
        """See RunFollower."""
        self._journey.ended(error)

    def failed_beside(self, worker: WorkerKey, error: SplitserveError) -> None:
        """See Racing."""
        self._journey.attempts.failed_beside(worker, error)

    def goes_over(self, attempt: Attempt) -> None:
        """See Racing. The time that the first attempt had counts as queueing."""
        journey, decision = self._journey, attempt.decision
        part, attempt.part = attempt.part, None
        journey.attempts.goes_on_at(attempt.worker)
        journey.goes_over(decision, part, attempt.turn)
        journey.run_by(attempt.run, attempt.request)
        decision.notes += (
            *journey.notes,
            f"goes on at {attempt.worker.worker_id}, which was first",
        )
        self._decisions.record(decision)
        self._metrics.hedges_won.inc()
