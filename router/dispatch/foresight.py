"""What would become of a request that waits, if it were sent now."""

from __future__ import annotations

from functools import cached_property

from cluster.errors import ContextTooLong, NoWorker
from router.dispatch.admission import Asked
from router.dispatch.outlook import Outlook
from router.dispatch.routing import RoutingDesk
from router.dispatch.stream import RoutedRequest
from router.fleet.worker_room import Need
from router.pricing.estimates import Estimates
from router.telemetry.decisions import Decision


class Foresight:
    """A Prospect, by the route that the request would take at the first look."""

    def __init__(self, request: RoutedRequest, desk: RoutingDesk, estimates: Estimates) -> None:
        self._request = request
        self._desk = desk
        self._estimates = estimates

    def is_local(self) -> bool:
        """See Prospect; also where nobody can: it is told so when it has its turn."""
        try:
            decision = self._decision
        except (ContextTooLong, NoWorker):
            return True
        return not decision.route.prefill and bool(decision.view.prefill)

    def outlook(self) -> Outlook | None:
        """See Prospect. Raises ContextTooLong."""
        try:
            return Outlook.of(self._decision, self._estimates)
        except NoWorker:
            return None

    @cached_property
    def _decision(self) -> Decision:
        return self._desk.decide(self._request, frozenset())


def asked_by(request: RoutedRequest, desk: RoutingDesk, estimates: Estimates) -> Asked:
    """The request at the door."""
    per_choice = request.expected_tokens or request.sampling.max_tokens
    need = Need(request.num_choices, len(request.token_ids), request.num_choices * per_choice)
    return Asked(
        tenant=request.tenant,
        priority=request.priority,
        weight=request.weight,
        deadline=request.limits.to_first_token,
        need=need,
        prospect=Foresight(request, desk, estimates),
    )
