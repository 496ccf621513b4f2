"""A router that has just started learns what its workers have cached before clients come to it.

    no worker yet -> some are there, and not all is known -> all is known, or it has waited -> for
                                                          for as long as it may     ever ready

A worker that beats and has not joined was another router's, before this one took its place: others
of that router come back as well, and are waited for. Whoever joins later is learned while others
are served.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.deadline import Clock
from cluster.membership.client import LAST_RETRY_S
from router.fleet.event_followers import EventFollowers
from router.fleet.fleet import Fleet

HEAR_ALL_S = 2 * LAST_RETRY_S
"""Of a router that has just started: until then those who were there before it have come back."""


class FirstLook:
    """Of one router; asked on every probe."""

    def __init__(
        self,
        fleet: Fleet,
        followers: EventFollowers,
        clock: Clock,
        wait_s: float,
        why_not_whole: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`wait_s`: from the first decode worker that takes work. One that tells nothing holds up
        nobody for longer: what is not known costs prompts their way, and no more. `why_not_whole`:
        what other routers know and this one does not, in words."""
        self._fleet = fleet
        self._followers = followers
        self._clock = clock
        self._wait_s = wait_s
        self._why_not_whole = why_not_whole
        self._began_s: float | None = None
        self._heard_former_s: float | None = None
        self._is_over = False

    def why_not_ready(self) -> str | None:
        """None when clients may come; else what is missing, in words."""
        if (reason := self._fleet.why_not_ready()) is not None:
            return reason
        if self._is_over:
            return None
        if self._began_s is None:
            self._began_s = self._clock()
        reason = self._why_more_come() or self._why_not_whole() or self._why_not_known()
        self._is_over = reason is None or self._clock() - self._began_s >= self._wait_s
        return None if self._is_over else reason

    def hear_former(self) -> None:
        """A worker beats that has not joined this router."""
        if self._heard_former_s is None:
            self._heard_former_s = self._clock()

    def _why_more_come(self) -> str | None:
        """Within HEAR_ALL_S of the first sign of a router before this one all of its workers have
        asked to join."""
        former_s = self._heard_former_s
        if former_s is None or self._clock() - former_s >= HEAR_ALL_S:
            return None
        return "workers of the router before this one may not have come back yet"

    def _why_not_known(self) -> str | None:
        with_events = [item for item in self._fleet.members if item.follower is not None]
        behind = [i for i in with_events if not self._followers.knows(i.key)]
        if not behind:
            return None
        return f"what {len(behind)} of {len(with_events)} workers have cached is not known yet"
