"""What would become of a request that waits, if it were sent now."""

from __future__ import annotations

from cluster.errors import ContextTooLong, NoWorker
from cluster.identity import WorkerKey
from router.dispatch.asked import Asked
from router.dispatch.outlook import Outlook
from router.dispatch.routing import RoutingDesk
from router.dispatch.stream import RoutedRequest
from router.fleet.worker_room import Need
from router.pricing.estimates import Estimates
from router.pricing.policy import MARGIN
from router.telemetry.decisions import Decision

BELIEVED_S = 0.5
"""A route that was looked at longer ago says nothing: pricing a prompt of 100k tokens takes 20 ms,
so that whoever is first in line costs 4 % of the loop at most."""
ANSWER_MARGIN = 1.25
"""Times the length that answers get, on average, is kept for one. Those that get longer find room
among those that do not, or their worker sets one of them back."""


class Foresight:
    """A Prospect, by the route that the request would take at the last look."""

    def __init__(self, request: RoutedRequest, desk: RoutingDesk, estimates: Estimates) -> None:
        self._request = request
        self._desk = desk
        self._estimates = estimates
        self._seen: Decision | None = None
        self._seen_s = 0.0

    def is_local(self, line_ms: float) -> bool:
        """See Prospect; also where nobody can: it is told so when it has its turn."""
        try:
            decision = self._decision()
        except (ContextTooLong, NoWorker):
            return True
        route, view = decision.route, decision.view
        if not route.prefill:
            return bool(view.prefill)
        if not line_ms or not view.allows_local_prefill:
            return False
        alone_ms = min(each.cost.total_ms for each in route.candidates if each.prefill is None)
        return route.chosen.cost.total_ms + line_ms > alone_ms * (1 + MARGIN)

    def cached_tokens(self, key: WorkerKey) -> int:
        """See Prospect."""
        try:
            return self._decision().cached_at(key)
        except (ContextTooLong, NoWorker):
            return 0

    def outlook(self) -> Outlook | None:
        """See Prospect. Raises ContextTooLong."""
        try:
            return Outlook.of(self._decision(), self._estimates)
        except NoWorker:
            return None

    def _decision(self) -> Decision:
        now_s = self._request.limits.clock()
        if self._seen is None or now_s - self._seen_s > BELIEVED_S:
            self._seen, self._seen_s = self._desk.decide(self._request, frozenset()), now_s
        return self._seen


def asked_by(request: RoutedRequest, desk: RoutingDesk, estimates: Estimates) -> Asked:
    """The request at the door."""
    return Asked(
        tenant=request.tenant,
        priority=request.priority,
        weight=request.weight,
        deadline=request.limits.to_first_token,
        need=_need_of(request, estimates.completion_tokens),
        prospect=Foresight(request, desk, estimates),
    )


def _need_of(request: RoutedRequest, usual_tokens: float) -> Need:
    """`usual_tokens`: that a choice gets, on average."""
    sampling = request.sampling
    expected_tokens = max(sampling.min_tokens, int(ANSWER_MARGIN * usual_tokens))
    per_choice = min(sampling.max_tokens, expected_tokens)
    return Need(request.num_choices, len(request.token_ids), request.num_choices * per_choice)
