"""How long whoever watches without a deadline goes on after the login has ended.

A server that is away comes back by itself, and is waited for; a login does not, and where nobody
sits before the watch it would never end.
"""

from __future__ import annotations

import time

from cluster.deadline import Clock
from cluster.errors import LoginLost, WorkerLost

PATIENCE_S = 60.0
"""For who sits there to log in again; kubeconfig and plugin are read again meanwhile."""


class LoginPatience:
    """Of one watch."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lost_at_s: float | None = None

    def answered(self) -> None:
        """The server knows who asks."""
        self._lost_at_s = None

    def failed(self, failure: WorkerLost) -> None:
        """Raises it where it is a login's end, and there was none for too long. While the server
        is away nobody knows whether there is one: whoever sits there has the whole time once it
        is back."""
        if not isinstance(failure, LoginLost):
            self._lost_at_s = None
            return
        if self._lost_at_s is None:
            self._lost_at_s = self._clock()
        if self._clock() >= self._lost_at_s + PATIENCE_S:
            raise failure
