"""Whether a request that came now would be served, and how long it may be."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from cluster.deadline import Clock
from cluster.process.lifespan import Lifespan

REMEMBERED_S = 0.05
"""How old a look at the workers' room may be."""


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


class ContextLimit:
    """The model's own limit, or less when the workers have room for less.

    Every request asks several times, and a fleet may be large: the workers are looked at again
    after a moment. Routing knows who has room now.
    """

    def __init__(
        self, model_tokens: int, worker_tokens: Callable[[], int | None], clock: Clock
    ) -> None:
        self._model_tokens = model_tokens
        self._worker_tokens = worker_tokens
        self._clock = clock
        self._tokens = model_tokens
        self._ends_s = -inf

    def __call__(self) -> int:
        """Tokens of prompt and completion together."""
        now_s = self._clock()
        if now_s >= self._ends_s:
            room = self._worker_tokens()
            self._tokens = self._model_tokens if room is None else min(self._model_tokens, room)
            self._ends_s = now_s + REMEMBERED_S
        return self._tokens
