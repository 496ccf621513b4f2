"""Whose turn it is at a door: callers who have least come first, and nobody may have everything.

Addresses are equals, whatever connections they make; at one address, which may be that of a proxy
or of a whole network, its connections are. What a caller may have is measured by what is free, as
buffers of a switch are shared (Choudhury and Hahne, Dynamic queue length thresholds, 1998): a
newcomer finds a place, and nobody has to be sent away for it. Pure policy: claims come in order,
the oldest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
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

    def at_address(self, address: str) -> int:
        """Those of an address."""
        return self._addresses[address]

    def by_connection(self, connection: str) -> int:
        """Those of a connection."""
        return self._connections[connection]

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
    of_connection = max(1, _num_left(taken, num_places) * PLACES_PER_FREE_OF_CONNECTION)
    return _has_share(caller, taken, num_places) and taken.of_connection(caller) < of_connection


def _has_share(caller: Caller, taken: CallerCounts, num_places: int) -> bool:
    """Whether another one of its address may have a place."""
    num_left = _num_left(taken, num_places)
    return num_left >= 0 and taken.of_address(caller) < max(1, share_of_address(num_left))


def _num_left(taken: CallerCounts, num_places: int) -> int:
    """After another one; below zero where there is none."""
    return num_places - taken.num - 1


def next_in_turn(
    waiting: Collection[SomeClaim], taken: CallerCounts, num_places: int
) -> SomeClaim | None:
    """The first in line of who has the fewest places; None where there is one for nobody."""
    addresses = {claim.caller.address: claim.caller for claim in waiting}
    full = {  # of crowds they are few, and each look at a claim takes its time
        address for address, one in addresses.items() if not _has_share(one, taken, num_places)
    }
    admitted = (
        claim
        for claim in waiting
        if claim.caller.address not in full and has_place_for(claim.caller, taken, num_places)
    )
    return min(admitted, key=lambda claim: _rank(claim, taken), default=None)


def last_in_turn(waiting: Collection[SomeClaim], in_line: CallerCounts) -> SomeClaim:
    """The last to come of who has the most in line; `in_line` are the counts of all who wait.

    By `_rank`, one of its parts after the other: with 256 in line that takes a fifth of the time.
    """
    claims = [claim for claim in waiting if claim.is_doubted] or list(waiting)
    claims = _of_most(claims, [claim.caller.address for claim in claims], in_line.at_address)
    claims = _of_most(claims, [claim.caller.connection for claim in claims], in_line.by_connection)
    return ([claim for claim in claims if not claim.is_known] or claims)[-1]


def may_give_way(
    placed: Iterable[SomeClaim], waiting: Collection[Claim], taken: CallerCounts
) -> list[SomeClaim]:
    """Those whose addresses have no fewer places than somebody's who waits."""
    fewest = min(taken.of_address(claim.caller) for claim in waiting)
    return [claim for claim in placed if taken.of_address(claim.caller) >= fewest]


def _of_most(
    claims: list[SomeClaim], names: list[str], count: Callable[[str], int]
) -> list[SomeClaim]:
    """Those whose name has the highest count; `names` are theirs, in their order."""
    counts = {name: count(name) for name in set(names)}
    most = max(counts.values())
    return [claim for claim, name in zip(claims, names, strict=True) if counts[name] == most]


def _rank(claim: Claim, tally: CallerCounts) -> tuple[bool, int, int, bool]:
    """The lowest is first; between equals, a stranger has more than who is known."""
    of_address, of_connection = tally.of_address(claim.caller), tally.of_connection(claim.caller)
    return claim.is_doubted, of_address, of_connection, not claim.is_known


def _take(counts: Counter[str], name: str, num: int) -> None:
    counts[name] -= num
    if not counts[name]:
        del counts[name]
