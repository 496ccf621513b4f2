"""Whose turn it is at a door, and whose is over: callers who have least come first.

Addresses are equals, whatever connections they make; at one address, which may be that of a proxy
or of a whole network, its connections are. Pure policy: claims come in order, the oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from router.grpc_front.caller import Caller


class Claim(Protocol):
    """Something of a caller that has, or wants, a place."""

    @property
    def caller(self) -> Caller:
        """Whose it is."""

    @property
    def is_known(self) -> bool:
        """Its connection comes before others that have no more: see HeardBefore."""


SomeClaim = TypeVar("SomeClaim", bound=Claim)


class Shares:
    """How many of some claims each caller has."""

    def __init__(self, claims: Collection[Claim]) -> None:
        self._addresses = Counter(claim.caller.address for claim in claims)
        self._connections = Counter(claim.caller.connection for claim in claims)

    def of(self, claim: Claim) -> tuple[int, int, bool]:
        """Those of its address, and of its connection; between equals, a stranger has more."""
        caller = claim.caller
        of_address = self._addresses[caller.address]
        return of_address, self._connections[caller.connection], not claim.is_known


def next_in_turn(waiting: Iterable[SomeClaim], placed: Collection[Claim]) -> SomeClaim:
    """The first in line of who has the fewest places."""
    return min(waiting, key=Shares(placed).of)


def last_in_turn(waiting: Collection[SomeClaim]) -> SomeClaim:
    """The last to come of who has the most in line."""
    return max(reversed(list(waiting)), key=Shares(waiting).of)


def who_gives_way(placed: Collection[SomeClaim], waiting: Collection[Claim]) -> SomeClaim | None:
    """The oldest of who has most places, where that is two more than somebody who waits has; None
    among equals."""
    shares = Shares(placed)
    fewest = min(shares.of(claim)[0] for claim in waiting)
    fewest_at = _fewest_at_each_address(waiting, shares)

    def has_too_many(claim: Claim) -> bool:
        of_address, of_connection, _ = shares.of(claim)
        of_rival = fewest_at.get(claim.caller.address, of_connection)
        return of_address > fewest + 1 or of_connection > of_rival + 1

    return max(filter(has_too_many, placed), key=shares.of, default=None)


def _fewest_at_each_address(waiting: Iterable[Claim], shares: Shares) -> dict[str, int]:
    """Places of the connection that has fewest, of those that wait."""
    fewest: dict[str, int] = {}
    for claim in waiting:
        address, num_places = claim.caller.address, shares.of(claim)[1]
        fewest[address] = min(num_places, fewest.get(address, num_places))
    return fewest
