"""What has come of a verdict that changes a pool."""

from __future__ import annotations

import enum


class OrderOutcome(enum.StrEnum):
    """For metrics and events."""

    BEGUN = "begun"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """Nobody has answered: it may have begun."""
    DRY_RUN = "dry run"
