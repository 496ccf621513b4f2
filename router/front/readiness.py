"""Whether a request that came now would be served, and how long it may be."""

from __future__ import annotations

from collections.abc import Callable

from cluster.process.lifespan import Lifespan


class FrontReadiness:
    """Ready when everything is that a request needs, unless this router itself is leaving."""

    def __init__(self, in_flight: Lifespan, *missing: Callable[[], str | None]) -> None:
        """`missing`: of each part that is needed, what it lacks; None when nothing."""
        self._missing = missing
        self._in_flight = in_flight

    def why_not_ready(self) -> str | None:
        """See `router.api.status_endpoints.Readiness`."""
        if self._in_flight.is_draining:
            return "this router is shutting down"
        reasons = (lacks() for lacks in self._missing)
        return next((reason for reason in reasons if reason is not None), None)


def context_limit(model_tokens: int, worker_tokens: Callable[[], int | None]) -> Callable[[], int]:
    """The model's own limit, or less when the workers have room for less."""

    def limit() -> int:
        room = worker_tokens()
        return model_tokens if room is None else min(model_tokens, room)

    return limit
