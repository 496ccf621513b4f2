"""What would become of a request that waits, if it were sent now."""

from __future__ import annotations

from cluster.errors import ContextTooLong, NoWorker
from cluster.identity import WorkerKey
from router.dispatch.asked import Asked
from router.dispatch.outlook import Outlook
from router.dispatch.pricings import Pricings
from router.dispatch.routing import RoutingDesk
from router.dispatch.stream import RoutedRequest
from router.fleet.need import Need
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

    def __init__(
        self, request: RoutedRequest, desk: RoutingDesk, estimates: Estimates, pricings: Pricings
    ) -> None:
        self._request = request
        self._desk = desk
        self._estimates = estimates
        self._pricings = pricings
        self._seen: Decision | None = None
        self._seen_s = 0.0

    def is_local(self, line_ms: float) -> bool:
        """See Prospect; also where nobody can: it is told so when it has its turn."""
        try:
            decision = self._believed()
        except (ContextTooLong, NoWorker):
            return True
        if decision is None:
            return False
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
            decision = self._believed()
        except (ContextTooLong, NoWorker):
            return 0
        return 0 if decision is None else decision.cached_at(key)

    def outlook(self) -> Outlook | None:
        """See Prospect. Raises ContextTooLong."""
        try:
            return Outlook.of(self._decision(), self._estimates)
        except NoWorker:
            return None

    def _believed(self) -> Decision | None:
        """At a look: what was believed before, if anything, once enough routes are priced."""
        if not self._is_fresh and not self._pricings.take(len(self._request.token_ids)):
            return self._seen
        return self._decision()

    def _decision(self) -> Decision:
        if self._seen is None or not self._is_fresh:
            self._seen_s = self._request.limits.clock()
            self._seen = self._desk.decide(self._request, frozenset())
        return self._seen

    @property
    def _is_fresh(self) -> bool:
        now_s = self._request.limits.clock()
        return self._seen is not None and now_s - self._seen_s <= BELIEVED_S


def asked_by(
    request: RoutedRequest, desk: RoutingDesk, estimates: Estimates, pricings: Pricings
) -> Asked:
    """The request at the door."""
    return Asked(
        tenant=request.tenant,
        priority=request.priority,
        weight=request.weight,
        came_s=request.limits.arrived_s,
        deadline=request.limits.to_first_token,
        need=_need_of(request, estimates.completion_tokens, desk),
        prospect=Foresight(request, desk, estimates, pricings),
        is_follower=bool(request.follows),
    )


def _need_of(request: RoutedRequest, usual_tokens: float, desk: RoutingDesk) -> Need:
    """`usual_tokens`: that a choice gets, on average. Choices beyond the seats of any worker take
    turns there."""
    sampling = request.sampling
    expected_tokens = max(sampling.min_tokens, int(ANSWER_MARGIN * usual_tokens))
    per_choice = min(sampling.max_tokens, expected_tokens)
    num_seqs = request.num_sequences
    if num_seqs > 1:
        num_seqs = min(num_seqs, desk.max_num_seqs or num_seqs)
    return Need(num_seqs, len(request.token_ids), request.num_sequences * per_choice)
