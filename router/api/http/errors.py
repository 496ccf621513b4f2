"""Errors in OpenAI's shape, with the headers that tell a client whether to come again."""

from __future__ import annotations

import math

import msgspec

from cluster.errors import SplitserveError, Unauthenticated, status_of
from cluster.retry_after import Draw, retry_after_s
from router.api.answers.bodies import ErrorBody, ErrorDetail

Headers = list[tuple[bytes, bytes]]


def error_body(error: SplitserveError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`, with "details" where there are any."""
    row = status_of(error)
    details = error.details or msgspec.UNSET
    detail = ErrorDetail(error.message, row.openai_type, error.param, row.code, details)
    return msgspec.json.encode(ErrorBody(detail))


def error_headers(error: SplitserveError, draw: Draw) -> Headers:
    """Retry-After where waiting helps, the scheme where a key does, and `x-should-retry: false`
    where the work was begun already.

    OpenAI's clients repeat a request after any 5xx unless told not to, and would run it twice.
    """
    wait_s = retry_after_s(error, draw)
    if wait_s is not None:
        return [
            (b"retry-after", str(max(1, round(wait_s))).encode()),
            (b"retry-after-ms", str(max(1, math.ceil(wait_s * 1000))).encode()),
        ]
    if isinstance(error, Unauthenticated):
        return [(b"www-authenticate", b"Bearer")]
    if status_of(error).http >= 499:
        return [(b"x-should-retry", b"false")]
    return []
