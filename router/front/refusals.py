"""What both doors say in the same words to whom they cannot serve."""

from __future__ import annotations

from cluster.errors import InternalError, NotReady


def internal_error() -> InternalError:
    """For a bug of ours, whose trace is in the log and in no answer."""
    return InternalError("the router failed on this request; its log says why")


def crowded(what: str) -> NotReady:
    """Too many of `what`, such as connections, are there already."""
    return NotReady(f"too many {what} at once; close some or try again later")
