"""The LimitStore of several routers: one state a key, in the store that they share.

    there: a take asks the store, which counts it for all; settles are told every TELL_S
    late:  the take is answered by what was known of the limits; what the store says of it later is
           set right: one that it refused is told, one that was not let in here is given back, and
           of one whose client left before the answer what was spent by then stays counted
    away:  each router lets in its part of every limit; what it let in is told on return; and so it
           does of a limit that the store refuses to count, until it counts it: alone, the others
           are told together

What was not sent is told later; what was may have been counted, and is not told again.
Nobody is refused for the store itself, and nobody gets more than each router's part of a limit on
top of the limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.deadline import Clock, Sleep
from cluster.logs import get_logger
from router.store.errors import StoreAway, StoreLate, StoreRefuses
from router.store.link import StoreReply
from router.store.shared_store import OnLate, SharedStore
from router.store.topics import StoreTopic
from router.tenants.limit_script import (
    CHARGE_LIMITS,
    ChargeReply,
    charge_command,
    read_charge_reply,
)
from router.tenants.limit_share import LimitShare
from router.tenants.limit_store import Charge, LimitStore, MemoryLimits, Shortage
from router.tenants.limits import UNTOUCHED, Left, Limit, State
from router.tenants.unsettled import Unsettled

TELL_S = 0.05
TELL_WITHIN_S = 1.0
"""No request waits for it."""
MAX_ALONE = 32
"""Limits of which the store is told one by one, each time: some 0.5 ms of its time."""
_log = get_logger("router.limits")


@dataclass(slots=True, eq=False)
class _Take:
    """One, while the store is asked."""

    charges: Sequence[Charge]
    spent: Sequence[Charge]
    """Counted of whoever leaves, from when it has left."""
    is_let_in: bool = False
    """Here: without the store's word, or before it."""
    has_left: bool = False


class SharedLimits:
    """A LimitStore. `keep_told` runs beside it."""

    def __init__(
        self,
        store: SharedStore,
        num_routers: Callable[[], int],
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        on_own: Callable[[], None] = lambda: None,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """`num_routers`: that are there, with this one. `on_own` hears of each take that the store
        did not answer, `on_left` of each that nobody waited for to the end."""
        self._store = store
        self._num_routers = num_routers
        self._clock = clock
        self._sleep = sleep
        self._on_own, self._on_left = on_own, on_left
        self._known = MemoryLimits(clock)
        """As the store has last said it: where it was emptied, this is what it begins with."""
        self._share: LimitShare | None = None
        """Of limits that the store does not count: from the first such take until it has come."""
        self._unsettled = Unsettled()
        self._refused: set[str] = set()
        """Keys of limits that the store did not count when it was last told of them."""
        self._num_on_way = 0
        """Limits that the store is being told of, or is told of again."""
        store.teach(CHARGE_LIMITS)
        store.watch(self._on_change)

    @property
    def clock(self) -> Clock:
        """See LimitStore."""
        return self._clock

    async def take(
        self, charges: Sequence[Charge], spent: Sequence[Charge] = ()
    ) -> Shortage | None:
        """See LimitStore. What takes nothing is answered by what is known."""
        if not any(amount for _, amount in charges):
            return await self._counting(limit for limit, _ in charges).take(charges)
        take = _Take(charges, spent)
        try:
            shortage = await self._ask(take)
        except asyncio.CancelledError:
            take.has_left = True
            self.settle(spent)
            self._on_left()
            raise
        except StoreAway as away:
            self._on_own()
            here = self._known if isinstance(away, StoreLate) else self._own_share()
            shortage = await here.take(charges)
            take.is_let_in = shortage is None
            if take.is_let_in and not away.may_be_done:
                self._unsettled.add(charges)
            return shortage
        if self._share is not None:
            self._share.let_go(charges)
        return shortage

    def settle(self, charges: Sequence[Charge]) -> None:
        """See LimitStore."""
        self._unsettled.add(charges)
        if self._share is not None:
            self._share.settle(charges)

    def left(self, limit: Limit) -> Left:
        """See LimitStore."""
        return self._counting((limit,)).left(limit)

    async def keep_told(self) -> None:
        """Never returns."""
        while True:
            before_s = self._clock()
            await self._sleep(TELL_S)
            if not await self.tell():
                self._unsettled.fade(self._clock() - before_s, self._num_routers())

    @property
    def num_untold(self) -> int:
        """Limits of which the store has to hear."""
        return len(self._unsettled) + self._num_on_way

    def _counting(self, limits: Iterable[Limit]) -> LimitStore:
        share = self._share
        return share if share is not None and any(map(share.holds, limits)) else self._known

    async def _ask(self, take: _Take) -> Shortage | None:
        """Raises StoreAway."""
        charges = take.charges
        late: OnLate = lambda replies: self._heard_late(take, replies)  # noqa: E731
        said = await self._charge(charges, is_take=True, on_late=late)
        return None if said.refused is None else Shortage(said.refused, said.wait_s)

    def _heard_late(self, take: _Take, replies: Sequence[StoreReply]) -> None:
        """The store's word comes after ours: whoever asked was answered, or has left."""
        said = read_charge_reply(replies[0], take.charges, self._clock())
        self._known.hear(said.states)
        is_counted = said.refused is None
        if is_counted and not take.is_let_in:
            self._unsettled.add(_given_back(take.charges))
        elif take.is_let_in and not is_counted:
            self._unsettled.add(take.charges)
        elif take.has_left and not is_counted:
            self._unsettled.add(_given_back(take.spent))

    def _own_share(self) -> LimitStore:
        if self._share is None:
            self._share = LimitShare(self._clock, self._num_routers(), self._state_known)
        return self._share

    def _state_known(self, key: str) -> State:
        return self._known.states.get(key, UNTOUCHED)

    async def tell(self) -> bool:
        """What there is, now; all of it is sent once. False: the store does not take it now, or not
        all of it."""
        later: list[Charge] = []
        try:
            while self._store.is_there:
                if not (charges := self._unsettled.pop()):
                    return not later
                self._num_on_way = len(later) + len(charges)
                if not await self._told(charges, later):
                    return False
            return False
        finally:
            self._num_on_way = 0
            self._unsettled.add(later)
            self._refused &= {limit.key for limit, _ in later}

    async def _told(self, charges: Sequence[Charge], later: list[Charge]) -> bool:
        """What the store does not count keeps nothing else from it, and is added to `later`. False:
        it takes nothing now."""
        together = [each for each in charges if each[0].key not in self._refused]
        alone = [each for each in charges if each[0].key in self._refused]
        try:
            if together:
                await self._settled(together)
        except StoreRefuses:
            alone = [*together, *alone]
        except StoreAway as away:
            if not away.may_be_done:
                self._unsettled.add(charges)
            return away.may_be_done
        num_now = max(0, MAX_ALONE - len(later))
        later += alone[num_now:]
        async with asyncio.TaskGroup() as each_alone:
            for charge in alone[:num_now]:
                each_alone.create_task(self._told_alone(charge, later))
        return True

    async def _told_alone(self, charge: Charge, later: list[Charge]) -> None:
        try:
            await self._settled([charge])
        except StoreAway as away:
            if isinstance(away, StoreRefuses):
                self._refused.add(charge[0].key)
            if not away.may_be_done:
                later.append(charge)

    async def _settled(self, charges: Sequence[Charge]) -> None:
        """Raises StoreAway."""
        await self._charge(charges, is_take=False, within_s=TELL_WITHIN_S)

    async def _charge(
        self,
        charges: Sequence[Charge],
        *,
        is_take: bool,
        within_s: float | None = None,
        on_late: OnLate = lambda replies: None,
    ) -> ChargeReply:
        """Raises StoreAway."""
        names, known = self._store.names, self._known.states
        command = charge_command(names, charges, known, self._clock(), is_take=is_take)
        (reply,) = await self._store.ask(
            command, topic=StoreTopic.LIMITS, within_s=within_s, on_late=on_late
        )
        said = read_charge_reply(reply, charges, self._clock())
        self._known.hear(said.states)
        return said

    def _on_change(self, is_there: bool) -> None:
        if is_there:
            self._share = None
            _log.info("limits are shared with the other routers")
        else:
            _log.warning("limits: this router lets in its part", num_routers=self._num_routers())


def _given_back(charges: Sequence[Charge]) -> list[Charge]:
    return [(limit, -amount) for limit, amount in charges]
