"""Whether a request that came now would be served, and how long it may be."""

from __future__ import annotations

from collections.abc import Callable

from cluster.process.lifespan import Lifespan


class FrontReadiness:
    """The workers' readiness, unless this router itself is leaving."""

    def __init__(self, workers_missing: Callable[[], str | None], in_flight: Lifespan) -> None:
        """`workers_missing`: None when a decode worker takes work, else the reason."""
        self._workers_missing = workers_missing
        self._in_flight = in_flight

    def why_not_ready(self) -> str | None:
        """See `router.api.status_endpoints.Readiness`."""
        if self._in_flight.is_draining:
            return "this router is shutting down"
        return self._workers_missing()


def context_limit(model_tokens: int, worker_tokens: Callable[[], int | None]) -> Callable[[], int]:
    """The model's own limit, or less when the workers have room for less."""

    def limit() -> int:
        room = worker_tokens()
        return model_tokens if room is None else min(model_tokens, room)

    return limit
