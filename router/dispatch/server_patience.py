"""For how long a server may have made nothing before it is doubted, by what was foretold.

    sent --as often as SLACK the time to the first token, and LEAST_S at least--> doubted, once
      '- it makes something, for whomever: the time begins again -'

The request itself waits on, as long as its own limits say: a server that is doubted only gets none
that could go elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.process.own_lateness import LateTurn
from router.dispatch.time_limits import HEARING_S, TimeLimits
from router.fleet.standstill import Standstill

SLACK = 4.0
"""A line at a server that its numbers did not show yet may be so much longer."""
LEAST_S = 10.0
"""What is foretold of a server that has not been measured says little."""


class ServerPatience:
    """With one request. `on_end` hears once for how many seconds nothing was made."""

    def __init__(
        self,
        foretold_s: float,
        standstill: Standstill,
        limits: TimeLimits,
        on_end: Callable[[float], None],
    ) -> None:
        """Never longer than a token may take."""
        self.limit_s = min(max(LEAST_S, SLACK * foretold_s), limits.between_tokens_s)
        self._standstill = standstill
        self._on_end = on_end
        self._turn = LateTurn(limits.clock)
        self._timer: asyncio.TimerHandle | None = self._armed(self.limit_s)

    @property
    def is_at_its_end(self) -> bool:
        """True while it is not stopped, and the server has made nothing for so long."""
        is_over = self._timer is None or self._turn.is_late
        return not is_over and self._standstill.has_lasted(self.limit_s)

    def stop(self) -> None:
        """It has said something, or nobody waits for it; idempotent."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _armed(self, seconds: float) -> asyncio.TimerHandle:
        self._turn.due_in(seconds)
        return asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """A look that is late judges nobody: what has arrived is read first."""
        if self._turn.spares():
            self._timer = self._armed(min(self._turn.late_s, HEARING_S))
        elif self._standstill.has_lasted(self.limit_s):
            self._timer = None
            self._on_end(self.limit_s)
        else:
            self._turn.needs_none()
            self._timer = self._armed(max(0.05, self.limit_s - self._standstill.lasted_s))
