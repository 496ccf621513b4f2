"""How much of its limits a key has left, in the headers that OpenAI's clients read."""

from __future__ import annotations

import math

from router.api.http.errors import Headers
from router.tenants.account import Account
from router.tenants.limits import Left, Limit, LimitKind

_TOKENS = "tokens"
"""OpenAI's one name for both ways: of the limit that has less left."""


def rate_headers(account: Account) -> Headers:
    """`x-ratelimit-limit-NAME`, `-remaining-NAME` and `-reset-NAME` of each limit."""
    found = account.left()
    named = [(str(limit.kind), limit, left) for limit, left in found]
    of_tokens = [each for each in found if each[0].kind in (LimitKind.INPUT, LimitKind.OUTPUT)]
    if of_tokens:
        named.append((_TOKENS, *min(of_tokens, key=lambda each: each[1].amount)))
    return [header for each in named for header in _headers(*each)]


def _headers(name: str, limit: Limit, left: Left) -> Headers:
    values = ("limit", f"{limit.size:g}"), ("remaining", str(int(left.amount)))
    told = (*values, ("reset", _duration(left.reset_s)))
    return [(f"x-ratelimit-{part}-{name}".encode(), value.encode()) for part, value in told]


def _duration(seconds: float) -> str:
    """As OpenAI writes it: 20ms, 7s, 6m0s, 23h59m10s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{head}{whole % 60}s"
