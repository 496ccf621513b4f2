"""Two lines per request: accepted, and ended with outcome, usage and times."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from cluster.errors import SplitserveError, status_of
from cluster.generation import Timing, Usage
from cluster.logs import get_logger
from router.dispatch.stream import Completed, RoutedRequest

_log = get_logger("router.front")
_USAGE, _TIMING = Usage.__struct_fields__, Timing.__struct_fields__
_usage_values, _timing_values = attrgetter(*_USAGE), attrgetter(*_TIMING)  # asdict takes 40 us
_MEASURED_MS = tuple(name for name in _TIMING if name.endswith("_ms"))


class RequestLog:
    """The log of one request; the first ending that is called counts."""

    def __init__(self, request: RoutedRequest, num_prompt_tokens: int | None = None) -> None:
        """`num_prompt_tokens`: of all its inputs, where those that follow it have some."""
        self._request = request
        self._num_prompt_tokens = num_prompt_tokens or len(request.token_ids)
        self._over = False

    def accepted(self) -> None:
        """The request is checked and tokenized and goes to the dispatcher."""
        _log.info(
            "request accepted",
            request_id=self._request.request_id,
            prompt_tokens=self._num_prompt_tokens,
            max_tokens=self._request.sampling.max_tokens,
            n=self._request.sampling.n,
            **({"inputs": self._request.num_inputs} if self._request.num_inputs > 1 else {}),
        )

    def completed(self, end: Completed) -> None:
        """Every choice is over."""
        facts: dict[str, Any] = dict(zip(_USAGE, _usage_values(end.usage), strict=True))
        facts |= zip(_TIMING, _timing_values(end.timing), strict=True)
        for name in _MEASURED_MS:
            facts[name] = round(facts[name], 3)
        self._ended("completed", **facts)

    def completed_all(self, usage: Usage) -> None:
        """Every input is computed, for so much together."""
        self._ended("completed", **dict(zip(_USAGE, _usage_values(usage), strict=True)))

    def cancelled(self, num_tokens: int) -> None:
        """The client left."""
        self._ended("cancelled", completion_tokens=num_tokens)

    def failed(self, error: SplitserveError, num_tokens: int) -> None:
        """A typed error ended it."""
        code = status_of(error).code
        self._ended(code, completion_tokens=num_tokens, message=error.message)

    def crashed(self, num_tokens: int) -> None:
        """A bug of ours ended it; call it while the exception is handled."""
        self._ended("internal_error", completion_tokens=num_tokens, exc_info=True)

    def _ended(self, outcome: str, **facts: object) -> None:
        if self._over:
            return
        self._over = True
        limits = self._request.limits
        total_ms = round((limits.clock() - limits.arrived_s) * 1000, 3)
        _log.info(
            "request ended",
            request_id=self._request.request_id,
            outcome=outcome,
            total_ms=total_ms,
            **facts,
        )
