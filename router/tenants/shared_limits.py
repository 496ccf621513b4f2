"""The LimitStore of several routers: one state a key, in the store that they share.

    there: a take asks the store, which counts it for all; settles are told every TELL_S
    late:  the take is answered by what was known of the limits; what the store says of it later is
           set right: one that it refused is told, one that was not let in here is given back
    away:  each router lets in its part of every limit; what it let in is told on return; and so it
           does of a limit that the store refuses to count, until it counts it

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
from router.store.errors import StoreAway, StoreLate
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
_log = get_logger("router.limits")


@dataclass(slots=True, eq=False)
class _Take:
    """One, while the store is asked."""

    charges: Sequence[Charge]
    is_let_in: bool = False
    """Here: without the store's word, or before it."""


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
    ) -> None:
        """`num_routers`: that are there, with this one. `on_own` hears of each take that the store
        did not answer."""
        self._store = store
        self._num_routers = num_routers
        self._clock = clock
        self._sleep = sleep
        self._on_own = on_own
        self._known = MemoryLimits(clock)
        """As the store has last said it: where it was emptied, this is what it begins with."""
        self._share: LimitShare | None = None
        """Of limits that the store does not count: from the first such take until it has come."""
        self._unsettled = Unsettled()
        store.teach(CHARGE_LIMITS)
        store.watch(self._on_change)

    async def take(self, charges: Sequence[Charge]) -> Shortage | None:
        """See LimitStore. What takes nothing is answered by what is known."""
        if not any(amount for _, amount in charges):
            return await self._counting(limit for limit, _ in charges).take(charges)
        take = _Take(charges)
        try:
            shortage = await self._ask(take)
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
        return len(self._unsettled)

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
            self._unsettled.add([(limit, -amount) for limit, amount in take.charges])
        elif take.is_let_in and not is_counted:
            self._unsettled.add(take.charges)

    def _own_share(self) -> LimitStore:
        if self._share is None:
            self._share = LimitShare(self._clock, self._num_routers(), self._state_known)
        return self._share

    def _state_known(self, key: str) -> State:
        return self._known.states.get(key, UNTOUCHED)

    async def tell(self) -> bool:
        """What there is, now; all of it is sent once. False: the store does not take it now."""
        while self._store.is_there:
            if not (charges := self._unsettled.pop()):
                return True
            try:
                await self._charge(charges, is_take=False, within_s=TELL_WITHIN_S)
            except StoreAway as away:
                if not away.may_be_done:
                    self._unsettled.add(charges)
                return away.may_be_done
        return False

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
