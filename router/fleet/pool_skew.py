"""How far one role may be ahead of the other in a rolling update to another pairing.

    a worker of a new pairing joins -> it takes work at once, and is settling
    its role is not too far ahead   -> it has settled: it is ready, and Kubernetes takes an old one

Of the workers of a role that have settled and are not to leave so many have come over: its share.
None settles that would bring its role's share further above the other's than the limit: what was
asked for, or half a worker of each role, whichever is more. Both roles never have to wait at one
moment: what the two would be ahead of each other adds up to 1/p + 1/d, of p and d workers, so that
one of them is not above half of it. Where both might go on it is the decode worker, which answers
alone.

A pool that has none of another pairing (a first installation, a pool that grows) waits for nobody:
nobody leaves there. Of several workers that are settling the first by name goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from cluster.identity import Role
from router.fleet.member import FleetMember

NO_LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class _Side:
    """Workers of one role that have settled, of the pairings that come and go."""

    num_new: int
    num_all: int

    @property
    def share(self) -> Fraction:
        return Fraction(self.num_new, self.num_all)


class PoolSkew:
    """As of one moment."""

    def __init__(self, members: Iterable[FleetMember], max_skew: float) -> None:
        """`max_skew`: a share; 1: nobody waits."""
        staying = [item for item in members if not item.is_left]
        self._settled = [item for item in staying if not item.state.is_settling]
        self._settling = [item for item in staying if item.state.is_settling]
        self._max_skew = Fraction(max_skew)
        self._pairings: dict[str, set[str]] = {}
        """By pool: of those that have settled."""
        for item in self._settled:
            self._pairings.setdefault(item.pool, set()).add(item.pairing_key)

    def why_ahead(self, newcomer: FleetMember) -> str:
        """Why it is not to settle yet; empty: it may."""
        before = self._pairings.get(newcomer.pool, set()) - {newcomer.pairing_key}
        if not before or self._max_skew >= NO_LIMIT:
            return ""
        ours, theirs = self._sides(newcomer)
        if not theirs.num_all:  # of no pairing that it could take the place of: nobody pairs here
            return ""
        share = Fraction(ours.num_new + 1 + self._num_before(newcomer), ours.num_all)
        ahead = share - theirs.share
        half_of_each = (Fraction(1, ours.num_all) + Fraction(1, theirs.num_all)) / 2
        limit = max(self._max_skew, half_of_each)
        if ahead < limit or (ahead == limit and newcomer.is_decode):
            return ""
        return _in_words(newcomer.member.role, ours, theirs, limit)

    def _sides(self, newcomer: FleetMember) -> tuple[_Side, _Side]:
        """Of its role, and of the other. Both roles count the same pairings: all that are in pools
        which this one comes to."""
        everybody = self._settled + self._settling
        pools = {item.pool for item in everybody if item.pairing_key == newcomer.pairing_key}
        pairings = set().union(*(self._pairings.get(pool, ()) for pool in pools))
        counted = [item for item in self._settled if item.pairing_key in pairings]
        ours = [item for item in counted if item.is_decode == newcomer.is_decode]
        theirs = [item for item in counted if item.is_decode != newcomer.is_decode]
        new = newcomer.pairing_key
        return _side(ours, new), _side(theirs, new)

    def _num_before(self, newcomer: FleetMember) -> int:
        return sum(
            item.pairing_key == newcomer.pairing_key
            and item.is_decode == newcomer.is_decode
            and item.member.worker_id < newcomer.member.worker_id
            for item in self._settling
        )


def _side(items: list[FleetMember], new: str) -> _Side:
    return _Side(sum(item.pairing_key == new for item in items), len(items))


def _in_words(role: Role, ours: _Side, theirs: _Side, limit: Fraction) -> str:
    other = Role.PREFILL if role is Role.DECODE else Role.DECODE
    return (
        f"{ours.num_new} of {ours.num_all} {role.value} workers have this pairing and "
        f"{theirs.num_new} of {theirs.num_all} {other.value} workers: one more would be more than "
        f"{float(limit):.0%} ahead (--max-pool-skew)"
    )
