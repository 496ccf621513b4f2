"""How much of its limits a key has left, in the headers that OpenAI's clients read."""

from __future__ import annotations

import math

from router.api.http.errors import Headers
from router.tenants.account import Account
from router.tenants.limits import Left, Limit, LimitKind

_PARTS = ("limit", "remaining", "reset")
_TOKENS = "tokens"
"""OpenAI's one name for both ways: of the limit that has less left."""
_OF_TOKENS = (LimitKind.INPUT, LimitKind.OUTPUT)
_NAMES = {
    str(name): tuple(f"x-ratelimit-{part}-{name}".encode() for part in _PARTS)
    for name in (*LimitKind, _TOKENS)
}


def rate_headers(account: Account) -> Headers:
    """`x-ratelimit-limit-NAME`, `-remaining-NAME` and `-reset-NAME` of each limit."""
    headers: Headers = []
    scarcest: tuple[float, Limit, Left] | None = None
    for limit, left in account.left():
        _tell(headers, limit.kind, limit, left)
        if limit.kind in _OF_TOKENS and (scarcest is None or left.amount < scarcest[0]):
            scarcest = left.amount, limit, left
    if scarcest is not None:
        _tell(headers, _TOKENS, *scarcest[1:])
    return headers


def _tell(headers: Headers, name: str, limit: Limit, left: Left) -> None:
    size, remaining, reset = _NAMES[name]
    headers.append((size, b"%d" % limit.size if limit.size >= 1 else b"%g" % limit.size))
    headers.append((remaining, b"%d" % left.amount))
    headers.append((reset, _duration(left.reset_s)))


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: 20ms, 7s, 6m0s, 23h59m10s."""
    if seconds < 1:
        return b"%dms" % math.ceil(seconds * 1000)
    whole = math.ceil(seconds)
    if whole < 60:
        return b"%ds" % whole
    if whole < 3600:
        return b"%dm%ds" % (whole // 60, whole % 60)
    return b"%dh%dm%ds" % (whole // 3600, whole // 60 % 60, whole % 60)
