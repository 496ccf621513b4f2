"""One peer as a reader knows it: may it be asked, how much is asked of it, and for how long.

connect -> asked: at most MAX_SPANS_PER_PEER -> disconnect: leaving, until its reads are over
             '-- no progress, or a broken read: cut off, rests, and is asked again
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.kv_peer import KvPeer
from cluster.process.own_lateness import SeenTime
from kvtransfer.resharding import SAME_BLOCKS

MAX_SPANS_PER_PEER = 8
"""From one peer, over all jobs: 48 MB. So few that one of them lands now and then on any link that
works (10 s for 48 MB is 4.8 MB/s), so many that the link's latency is hidden. Other jobs wait."""

DISCONNECT_GRACE_S = 1.0
"""Reads from a peer that is known to be gone, or that a request has given up, may take this long to
end by themselves."""

REST_S = 1.0
"""Of a peer that was cut off: ending reads by force disturbs those of other peers."""


class PeerLink:
    """Belongs to the reading thread. `peer` is None for one that nobody has connected."""

    def __init__(
        self,
        incarnation: str,
        peer: KvPeer | None,
        *,
        patience_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.incarnation = incarnation
        self.peer = peer
        self.fit = SAME_BLOCKS
        """How its blocks become ours, from the moment that it is connected."""
        self.refused = ""
        """Why its pool cannot be read at all; empty when it can."""
        self.is_leaving = False
        self.is_doubted = False
        """Reads are in flight for a request that has given this peer up."""
        self._patience_s = patience_s
        self._patience = SeenTime(clock)
        self._clock = clock
        self._num_in_flight = 0
        self._rests_until: float | None = None

    @property
    def has_room(self) -> bool:
        """True when one more span may be asked for."""
        return self._num_in_flight < MAX_SPANS_PER_PEER

    @property
    def problem(self) -> str:
        """Why a new job from this peer cannot be done; empty when it can."""
        if self.is_leaving:
            return f"{self.incarnation} is gone"
        if self._rests_until is not None and self._clock() < self._rests_until:
            return f"{self.incarnation} was cut off less than {REST_S} s ago"
        return self.refused

    def posted(self) -> None:
        """A read is in flight; with the first one the waiting begins."""
        if not self._num_in_flight:
            self._patience.renew()
        self._num_in_flight += 1

    def landed(self) -> None:
        """A read is over, however it ended: this peer's side of the link moves."""
        self._num_in_flight -= 1
        self._patience.renew()

    def leave(self) -> None:
        """The peer is gone: what is in flight has the grace to end by itself."""
        self.is_leaving = True
        self._patience_s = min(self._patience_s, DISCONNECT_GRACE_S)
        self._patience.renew()

    def doubt(self) -> None:
        """Somebody has given the peer up: what is in flight has the grace to land. While anything
        of anybody lands, the link moves, and so do these reads."""
        self.is_doubted = True
        self._patience.renew()

    def rest(self) -> None:
        """It was cut off."""
        self._rests_until = self._clock() + REST_S

    def hangs(self) -> bool:
        """True when reads are in flight and none has landed for too long. Ask in every turn."""
        waited_s = self._patience.look()
        return self._num_in_flight > 0 and waited_s >= self._limit_s

    def verdict(self) -> str:
        """What is said of a peer that hangs."""
        if self.is_leaving:
            return f"{self.incarnation} is gone"
        return f"no answer from {self.incarnation} within {self._limit_s:g} s"

    @property
    def _limit_s(self) -> float:
        return min(self._patience_s, DISCONNECT_GRACE_S) if self.is_doubted else self._patience_s
