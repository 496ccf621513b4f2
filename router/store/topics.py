"""What routers share, by the names that logs and metrics have for it."""

from __future__ import annotations

from enum import StrEnum


class StoreTopic(StrEnum):
    """What a call to the store is about. One that the store refuses leaves the others alone."""

    ROUTERS = "routers"
    """Who is there, and what each has given its workers."""
    PREDICTIONS = "predictions"
    SHARES = "shares"
    """What tenants were served."""
    LIMITS = "limits"
    KEYS = "keys"
    ANSWERS = "answers"
    """Streams that another router may go on with."""
    OTHER = "other"
