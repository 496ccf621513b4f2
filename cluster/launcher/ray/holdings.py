"""What a launcher holds of a cluster, by the start that it was taken for.

open -> keep_group, keep_host -> give_back
given back before it came    the thread that brings it gives it back at once
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.launcher.ray.hosting import Host
from cluster.launcher.ray.placing import PlacedGroup
from cluster.launcher.ray.session import RaySession


@dataclass(slots=True)
class _Held:
    group: PlacedGroup | None = None
    host: Host | None = None

    def end(self, session: RaySession) -> None:
        """The actor first, so that it does not end as one whose room was taken."""
        if self.host is not None:
            self.host.end(session)
        if self.group is not None:
            self.group.remove(session)


class Holdings:
    """From any thread."""

    def __init__(self, session: RaySession) -> None:
        self._session = session
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

    def give_back(self, start: str) -> None:
        """Ends the actor and removes the group. Idempotent."""
        with self._lock:
            held = self._held.pop(start, None)
        if held is not None:
            held.end(self._session)

    def close(self) -> None:
        """All of them."""
        for start in list(self._held):
            self.give_back(start)


def _nobody_waits(start: str) -> ConfigError:
    return ConfigError(f"the start {start} was given up before Ray had found room for it")
