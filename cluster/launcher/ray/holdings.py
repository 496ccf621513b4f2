"""What a launcher holds of a cluster, by the start that it was taken for.

open -> keep_group, keep_host -> give_back
given back before it came    the thread that brings it gives it back at once

Ray's answers may never come: whoever gives back waits for PATIENCE_S, and leaves the rest to a
thread; with our connection Ray ends what it did not hear of.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from functools import partial

from cluster.errors import ConfigError
from cluster.launcher.ray.hosting import Host
from cluster.launcher.ray.placing import PlacedGroup
from cluster.launcher.ray.session import RaySession
from cluster.logs import get_logger
from cluster.process.thread_call import in_thread, in_thread_within

PATIENCE_S = 5.0
"""For what takes milliseconds."""
_log = get_logger("ray")


@dataclass(slots=True)
class _Held:
    group: PlacedGroup | None = None
    host: Host | None = None

    def end(self, session: RaySession) -> None:
        """The actor first, so that it does not end as one whose room was taken."""
        try:
            if self.host is not None:
                self.host.end(session)
        finally:
            if self.group is not None:
                self.group.remove(session)


class Holdings:
    """From any thread."""

    def __init__(self, session: RaySession, *, patience_s: float = PATIENCE_S) -> None:
        self._session = session
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def open(self, start: str) -> None:
        """Before anything is taken for it."""
        self._held[start] = _Held()

    def keep_group(self, start: str, group: PlacedGroup) -> None:
        """Raises ConfigError, and gives the group back, when nobody waits for it any more."""
        with self._lock:
            if (held := self._held.get(start)) is not None:
                held.group = group
                return
        _Held(group=group).end(self._session)
        raise _nobody_waits(start)

    def keep_host(self, start: str, host: Host) -> None:
        """As `keep_group`."""
        with self._lock:
            if (held := self._held.get(start)) is not None:
                held.host = host
                return
        _Held(host=host).end(self._session)
        raise _nobody_waits(start)

    async def give_back(self, start: str) -> None:
        """Ends the actor and removes the group, within `patience_s`. Idempotent; never raises for
        what Ray says, or does not say."""
        try:
            async with asyncio.timeout(self._patience_s):
                await in_thread(f"what {start} held", partial(self._end, start))
        except Exception as cause:  # of Ray's, or no thread is left
            _not_told(start, cause)

    def close(self) -> None:
        """All of them, as `give_back`; waits for PATIENCE_S at most."""
        try:
            in_thread_within(self._patience_s, "what is still held", self._end_all)
        except Exception as cause:
            _not_told("the fleet", cause)

    def _end_all(self) -> None:
        for start in list(self._held):
            self._end(start)

    def _end(self, start: str) -> None:
        with self._lock:
            held = self._held.pop(start, None)
        if held is not None:
            held.end(self._session)


def _not_told(start: str, cause: Exception) -> None:
    _log.warning("Ray could not be told that a start is over", start=start, cause=repr(cause))


def _nobody_waits(start: str) -> ConfigError:
    return ConfigError(f"the start {start} was given up before Ray had found room for it")
