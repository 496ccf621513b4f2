"""Errors in OpenAI's shape, with the headers that tell a client whether to come again."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from cluster.errors import NotReady, SplitserveError, status_of
from router.api.answers.bodies import ErrorBody, ErrorDetail

DEFAULT_RETRY_AFTER_S = 1.0
JITTER_SHARE = 0.5
"""Of the wait, at most, on top of it."""
Headers = list[tuple[bytes, bytes]]


def error_body(error: SplitserveError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`."""
    row = status_of(error)
    detail = ErrorDetail(error.message, row.openai_type, error.param, row.code)
    return msgspec.json.encode(ErrorBody(detail))


def error_headers(error: SplitserveError, draw: Callable[[], float]) -> Headers:
    """Retry-After where waiting helps; `x-should-retry: false` where the work was begun already.

    The wait is a little longer for some than for others, by `draw` in [0, 1): who was refused
    together does not come back together. OpenAI's clients repeat a request after any 5xx unless
    told not to, and would run it twice.
    """
    if isinstance(error, NotReady):
        delay_s = DEFAULT_RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s
        delay_s *= 1 + JITTER_SHARE * draw()
        return [
            (b"retry-after", str(max(1, round(delay_s))).encode()),
            (b"retry-after-ms", str(max(1, math.ceil(delay_s * 1000))).encode()),
        ]
    if status_of(error).http >= 499:
        return [(b"x-should-retry", b"false")]
    return []
