"""How one choice has ended, whatever API tells it."""

from __future__ import annotations

import msgspec

from cluster.generation import FinishReason


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` None: its end has not come."""

    reason: FinishReason | None = None
    has_called: bool = False
    """There is a call, and every one that was begun is whole."""
    stop: str | None = None
    """The client's stop string that ended it."""


NO_END = Ending()
