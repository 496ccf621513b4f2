"""What those are told who get no place, or not in time."""

from __future__ import annotations

from cluster.errors import Hopeless, QueueFull
from cluster.retry_after import DEFAULT_RETRY_AFTER_S
from router.dispatch.outlook import Outlook


def queue_full(num_waiting: int, wait_s: float) -> QueueFull:
    """`wait_s`: how long the line is."""
    wait_s = max(DEFAULT_RETRY_AFTER_S, wait_s)
    return QueueFull(
        f"{num_waiting} requests wait, which is the limit; try again in {wait_s:.0f} s, or raise "
        "--max-queued-requests",
        retry_after_s=wait_s,
    )


def too_late(wait_s: float, outlook: Outlook | None) -> Hopeless:
    """It waited until there was no time left for the rest of it, which `outlook` foretells."""
    error = Hopeless(
        "the request has waited until its deadline was too near for the rest of it: come again "
        "later, allow more time, or add workers",
        retry_after_s=max(DEFAULT_RETRY_AFTER_S, wait_s),
    )
    error.details = None if outlook is None else outlook.details
    return error
