"""The LimitStore of several routers: one state a key, in the store that they share.

    there: a take asks the store, which counts it for all; settles are told every TELL_S
    late:  the take counts, and is answered by what was known of the limits
    away:  each router lets in its part of every limit; what it let in is told on return

What was not sent is told later; what was may have been counted, and is not told again.
Nobody is refused for the store itself, and nobody gets more than each router's part of a limit on
top of the limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from cluster.deadline import Clock, Sleep
from cluster.logs import get_logger
from router.store.errors import StoreAway, StoreLate
from router.store.shared_store import SharedStore
from router.store.topics import StoreTopic
from router.tenants.limit_script import CHARGE_LIMITS, charge_command, read_charge_reply
from router.tenants.limit_share import LimitShare
from router.tenants.limit_store import Charge, LimitStore, MemoryLimits, Shortage
from router.tenants.limits import Left, Limit
from router.tenants.unsettled import Unsettled

TELL_S = 0.05
TELL_WITHIN_S = 1.0
"""No request waits for it."""
_log = get_logger("router.limits")


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
        """From the first take that finds the store away to the first that is answered."""
        self._unsettled = Unsettled()
        store.teach(CHARGE_LIMITS)
        store.watch(self._on_change)

    async def take(self, charges: Sequence[Charge]) -> Shortage | None:
        """See LimitStore. What takes nothing is answered by what is known."""
        if not any(amount for _, amount in charges):
            return await self._here.take(charges)
        try:
            shortage = await self._ask(charges)
        except StoreAway as away:
            self._on_own()
            here = self._known if isinstance(away, StoreLate) else self._own_share()
            shortage = await here.take(charges)
            if shortage is None and not away.may_be_done:
                self._unsettled.add(charges)
            return shortage
        self._share = None
        return shortage

    def settle(self, charges: Sequence[Charge]) -> None:
        """See LimitStore."""
        self._unsettled.add(charges)
        if self._share is not None:
            self._share.settle(charges)

    def left(self, limit: Limit) -> Left:
        """See LimitStore."""
        return self._here.left(limit)

    async def keep_told(self) -> None:
        """Never returns."""
        while True:
            before_s = self._clock()
            await self._sleep(TELL_S)
            if self._store.is_there:
                await self.tell()
            else:
                self._unsettled.fade(self._clock() - before_s, self._num_routers())

    @property
    def num_untold(self) -> int:
        """Limits of which the store has to hear."""
        return len(self._unsettled)

    @property
    def _here(self) -> LimitStore:
        return self._known if self._share is None else self._share

    async def _ask(self, charges: Sequence[Charge]) -> Shortage | None:
        """Raises StoreAway."""
        limit, wait_s = await self._charge(charges, is_take=True)
        return None if limit is None else Shortage(limit, wait_s)

    def _own_share(self) -> LimitStore:
        if self._share is None:
            self._share = LimitShare(self._clock, self._num_routers(), self._known.states)
        return self._share

    async def tell(self) -> None:
        """What there is, now; all of it is sent once."""
        while self._store.is_there and (charges := self._unsettled.pop()):
            try:
                await self._charge(charges, is_take=False, within_s=TELL_WITHIN_S)
            except StoreAway as away:
                if not away.may_be_done:
                    self._unsettled.add(charges)
                return

    async def _charge(
        self, charges: Sequence[Charge], *, is_take: bool, within_s: float | None = None
    ) -> tuple[Limit | None, float]:
        """Which limit refuses, and how long. Raises StoreAway."""
        names, known = self._store.names, self._known.states
        command = charge_command(names, charges, known, self._clock(), is_take=is_take)
        (reply,) = await self._store.ask(command, topic=StoreTopic.LIMITS, within_s=within_s)
        said = read_charge_reply(reply, charges, self._clock())
        self._known.hear(said.states)
        return said.refused, said.wait_s

    def _on_change(self, is_there: bool) -> None:
        if is_there:
            _log.info("limits are shared with the other routers")
        else:
            _log.warning("limits: this router lets in its part", num_routers=self._num_routers())
