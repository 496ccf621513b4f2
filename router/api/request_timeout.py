"""The deadline that a client names: the header X-Request-Timeout, the field `timeout_s`."""

from __future__ import annotations

import math

from cluster.deadline import MAX_TIMEOUT_S
from cluster.errors import InvalidRequest

TIMEOUT_HEADER = b"x-request-timeout"


def asked_timeout_s(header: str | None, field_s: float | None) -> float | None:
    """Seconds from the request's first byte to its last token; the sooner where both are given.

    None: the client named none. Raises InvalidRequest naming the one at fault.
    """
    asked = [] if field_s is None else [_checked(field_s, "timeout_s", field_s)]
    if header is not None:
        asked.append(_checked(_number(header), "X-Request-Timeout", header[:50]))
    return min(asked, default=None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _checked(seconds: float, name: str, given: float | str) -> float:
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise InvalidRequest(
            f"{name} is {given!r}; allowed: seconds, more than 0 and at most {MAX_TIMEOUT_S:.0f}",
            param=name,
        )
    return seconds
