"""What the front door must know of the workers: can they serve, and how long a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.identity import Role
from cluster.membership.member import MemberState
from router.front.in_flight import InFlight

Members = Callable[[], Sequence[MemberState]]


class FleetReadiness:
    """Ready when a decode worker takes work and this router is not leaving."""

    def __init__(self, members: Members, in_flight: InFlight) -> None:
        self._members = members
        self._in_flight = in_flight

    def why_not_ready(self) -> str | None:
        """See `router.api.status_endpoints.Readiness`."""
        if self._in_flight.is_draining:
            return "this router is shutting down"
        decode = [state for state in self._members() if state.member.role is Role.DECODE]
        if not decode:
            return "no decode worker has joined this router yet"
        if all(state.draining for state in decode):
            return f"all {len(decode)} decode workers are draining"
        return None


def context_limit(model_tokens: int, members: Members) -> Callable[[], int]:
    """The model's own limit, or less when a decode worker has room for less."""

    def limit() -> int:
        states = members()
        rooms = [s.member.max_context_tokens for s in states if s.member.role is Role.DECODE]
        return min([model_tokens, *rooms])

    return limit
