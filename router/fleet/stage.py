"""How far a request is, as its router sees it.

queued -> prefill -> transfer -> decode
                '------------------^    where the decode worker computes the prompt itself
"""

from __future__ import annotations

import enum


class RequestStage(enum.StrEnum):
    """In their order. One that is lost goes back to the first."""

    QUEUED = "queued"
    """It waits for a place, or is not sent yet."""
    PREFILL = "prefill"
    """Sent; no token has come."""
    TRANSFER = "transfer"
    """The prefill worker's token has come, and none that the decode worker has made: that has not
    all of the prompt's KV yet."""
    DECODE = "decode"
    """The decode worker makes its tokens."""
