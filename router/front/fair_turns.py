"""Whose turn it is at a door: callers who have least come first, and nobody may have everything.

Addresses are equals, whatever connections they make; at one address, which may be that of a proxy
or of a whole network, its connections are. What a caller may have is measured by what is free, as
buffers of a switch are shared (Choudhury and Hahne, Dynamic queue length thresholds, 1998): a
newcomer finds a place, and nobody has to be sent away for it. Pure policy: claims come in order,
the oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Reversible
from typing import Protocol, TypeVar

from router.front.caller import Caller

PLACES_PER_FREE_OF_ADDRESS = 3
"""Alone it has three quarters of all places."""
PLACES_PER_FREE_OF_CONNECTION = 1
"""Alone it has half of them."""


class Claim(Protocol):
    """Something of a caller that has, or wants, a place."""

    @property
    def caller(self) -> Caller:
        """Whose it is."""

    @property
    def is_known(self) -> bool:
        """Its connection comes before others that have no more: see HeardBefore."""

    @property
    def is_doubted(self) -> bool:
        """It comes after all that are not: see LostTime."""


SomeClaim = TypeVar("SomeClaim", bound=Claim)


class CallerCounts:
    """How many each caller has of something, be it places or bytes."""

    def __init__(self, callers: Iterable[Caller] = ()) -> None:
        self._addresses: Counter[str] = Counter()
        self._connections: Counter[str] = Counter()
        self.num = 0
        """Of all callers."""
        for caller in callers:
            self.add(caller)

    def add(self, caller: Caller, num: int = 1) -> None:
        """So many more of it."""
        self.num += num
        self._addresses[caller.address] += num
        self._connections[caller.connection] += num

    def remove(self, caller: Caller, num: int = 1) -> None:
        """So many that were added."""
        self.num -= num
        _take(self._addresses, caller.address, num)
        _take(self._connections, caller.connection, num)

    def of_address(self, caller: Caller) -> int:
        """Those of its address."""
        return self._addresses[caller.address]

    def of_connection(self, caller: Caller) -> int:
        """Those of its connection."""
        return self._connections[caller.connection]


def share_of_address(num_left: int) -> int:
    """What one may have where so much is left."""
    return num_left * PLACES_PER_FREE_OF_ADDRESS


def has_place_for(caller: Caller, taken: CallerCounts, num_places: int) -> bool:
    """Whether it may have another one: what is left after it bounds what it has. Who has none may
    take the last one."""
    num_left = num_places - taken.num - 1
    if num_left < 0:
        return False
    of_address = max(1, share_of_address(num_left))
    of_connection = max(1, num_left * PLACES_PER_FREE_OF_CONNECTION)
    return taken.of_address(caller) < of_address and taken.of_connection(caller) < of_connection


def next_in_turn(
    waiting: Iterable[SomeClaim], taken: CallerCounts, num_places: int
) -> SomeClaim | None:
    """The first in line of who has the fewest places; None where there is one for nobody."""
    admitted = (claim for claim in waiting if has_place_for(claim.caller, taken, num_places))
    return min(admitted, key=lambda claim: _rank(claim, taken), default=None)


def last_in_turn(waiting: Reversible[SomeClaim], in_line: CallerCounts) -> SomeClaim:
    """The last to come of who has the most in line; `in_line` are the counts of all who wait."""
    return max(reversed(waiting), key=lambda claim: _rank(claim, in_line))


def may_give_way(
    placed: Iterable[SomeClaim], waiting: Collection[Claim], taken: CallerCounts
) -> list[SomeClaim]:
    """Those whose addresses have no fewer places than somebody's who waits."""
    fewest = min(taken.of_address(claim.caller) for claim in waiting)
    return [claim for claim in placed if taken.of_address(claim.caller) >= fewest]


def _rank(claim: Claim, tally: CallerCounts) -> tuple[bool, int, int, bool]:
    """The lowest is first; between equals, a stranger has more than who is known."""
    of_address, of_connection = tally.of_address(claim.caller), tally.of_connection(claim.caller)
    return claim.is_doubted, of_address, of_connection, not claim.is_known


def _take(counts: Counter[str], name: str, num: int) -> None:
    counts[name] -= num
    if not counts[name]:
        del counts[name]
