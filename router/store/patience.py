"""How long anybody waits for the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits on the time of one router's calls."""

    call_s: float = 0.02
    """One call, on the path of a request; a round trip that takes longer is a late one."""
    stall_s: float = 0.1
    """A round trip: then the connection is given up, and the store is away."""
    connect_s: float = 0.5
    """Until a new connection has answered."""
    first_retry_s: float = 0.1
    """Before the store is looked for again; twice as long each time."""
    longest_retry_s: float = 1.0

    @classmethod
    def of_calls(cls, call_s: float) -> Patience:
        """For calls that may take so long: all else as usual, or in proportion where that is
        longer."""
        usual = cls()
        return cls(
            call_s=call_s,
            stall_s=max(usual.stall_s, 5 * call_s),
            connect_s=max(usual.connect_s, 10 * call_s),
        )


class Stall:
    """Two halves of a limit, one after the other: where this loop itself stood still, an answer
    that came meanwhile is read between them."""

    def __init__(self, limit_s: float, on_end: Callable[[], None]) -> None:
        """`on_end` is called once, unless `over` comes first."""
        self._half_s = limit_s / 2
        self._on_end = on_end
        self._timer = asyncio.get_running_loop().call_later(self._half_s, self._half_over)

    def over(self) -> None:
        """What was waited for has come."""
        self._timer.cancel()

    def _half_over(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._half_s, self._on_end)
