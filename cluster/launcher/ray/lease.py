"""How long a hosted process goes on when nobody asks for its news.

Its starter ends it as long as the two reach each other. When a raylet, a machine or the network
between them is lost, Ray tells the starter that the actor is gone, who then starts the process
elsewhere; only the actor itself can end the old one.
"""

from __future__ import annotations

import asyncio
import time

from cluster.deadline import Clock, Sleep
from cluster.process.silence import Silence

LEASE_S = 60.0
"""From the last time that the starter asked. A starter that was stopped for so long finds
nothing of its own any more."""
ASKED_EVERY_S = 5.0
"""An answer is given after so long, even if there is no news: the next question is the sign."""


class NewsLease:
    """Of one process; on one event loop."""

    def __init__(
        self,
        limit_s: float = LEASE_S,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._silence = Silence(limit_s, clock=clock)
        self._sleep = sleep

    def renew(self) -> None:
        """The starter asks."""
        self._silence.heard()

    async def run_out(self) -> None:
        """Returns once it has."""
        while not self._silence.tick():
            await self._sleep(self._silence.interval_s)
