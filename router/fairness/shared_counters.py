"""Tokens that tenants were served, over all routers that share a store. One sorted set a class.

    add, lift -> counted here at once, and told at the next tick with all others
    told      -> what all routers have counted comes back; what was added since goes on top
    not sent  -> put back, and told at the next tick

Routers are as far apart as what they serve within a tick. While the store is away each goes on by
itself and tells afterwards; one that was emptied is told what it had said. Needs Redis 6.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from router.fairness.counters import MAX_TENANTS
from router.store.link import StoreCommand, StoreReply

MAX_READ = 256
"""Tenants, those last touched, whose counters are read at once."""
LIFE_S = 3600
"""After an hour in which nobody was served all begin anew."""
_LEVEL = "level"


class SharedCounters:
    """Counters of one class, at one router."""

    def __init__(self, key: str) -> None:
        """`key`: the same at all routers."""
        self._key = key
        self._level_key = f"{key}:level"
        self._level = 0.0
        """The highest to which any router has lifted."""
        self._heard: OrderedDict[str, float] = OrderedDict()
        """As all routers have it; the one longest untouched first."""
        self._lifts: dict[str, float] = {}
        self._adds: dict[str, float] = {}
        """Both untold; what is added comes on top of what is lifted."""
        self._taken: list[tuple[str, float, float | None, float | None]] = []
        """At the last tick: whose, as heard before, lifted, added."""

    def of(self, tenant: str) -> float:
        """See Counters."""
        heard = max(self._heard.get(tenant, 0.0), self._lifts.get(tenant, 0.0))
        return heard + self._adds.get(tenant, 0.0)

    def add(self, tenant: str, tokens: float) -> None:
        """See Counters. One that is forgotten meanwhile stays so: it is lifted when it comes."""
        if tenant in self._heard:
            self._adds[tenant] = self._adds.get(tenant, 0.0) + tokens

    def lift(self, tenant: str, least: float) -> None:
        """See Counters. To where any router has lifted: a tenant has no claim elsewhere on what it
        did not use here."""
        self._level = max(self._level, least)
        if self.of(tenant) < self._level:
            self._lifts[tenant] = self._level
            self._adds.pop(tenant, None)
        self._heard.setdefault(tenant, 0.0)
        self._heard.move_to_end(tenant)
        if len(self._heard) > MAX_TENANTS:
            self._forget(next(iter(self._heard)))

    def emptied(self) -> None:
        """The store knows nothing any more of what it has said."""
        for tenant, heard in self._heard.items():
            self._lifts[tenant] = max(heard, self._lifts.get(tenant, 0.0))

    def take_commands(self) -> list[StoreCommand]:
        """All that is untold, and what is asked back: told once, whether it is heard or not, unless
        it is put back. Empty where no tenant is known."""
        self._taken = []
        tenants = list(self._heard)[-MAX_READ:]
        if not tenants:
            return []
        lifts, self._lifts = self._lifts, {}
        adds, self._adds = self._adds, {}
        for tenant in lifts.keys() | adds.keys():
            if tenant in self._heard:
                taken = tenant, self._heard[tenant], lifts.get(tenant), adds.get(tenant)
                self._taken.append(taken)
                self._heard[tenant] = self._sum(tenant, lifts, adds)
        return [
            *(("ZADD", self._key, "GT", least, tenant) for tenant, least in lifts.items()),
            *(("ZINCRBY", self._key, tokens, tenant) for tenant, tokens in adds.items()),
            ("ZADD", self._level_key, "GT", self._level, _LEVEL),
            ("ZREMRANGEBYRANK", self._key, 0, -MAX_TENANTS - 1),
            ("EXPIRE", self._key, LIFE_S),
            ("EXPIRE", self._level_key, LIFE_S),
            ("ZSCORE", self._level_key, _LEVEL),
            ("ZMSCORE", self._key, *tenants),
        ]

    def put_back(self) -> None:
        """What was taken last was not sent, and is untold; one that was lifted since begins there,
        and one that was forgotten stays so."""
        taken, self._taken = self._taken, []
        for tenant, heard, lift, added in taken:
            if tenant not in self._heard:
                continue
            self._heard[tenant] = heard
            if tenant in self._lifts:
                continue
            if lift is not None:
                self._lifts[tenant] = lift
            if added is not None:
                self._adds[tenant] = self._adds.get(tenant, 0.0) + added

    def hear(self, commands: Sequence[StoreCommand], replies: Sequence[StoreReply]) -> None:
        """The replies to those commands."""
        tenants, scores = commands[-1][2:], replies[-1]
        self._level = max(self._level, float(replies[-2] or 0.0))
        for tenant, score in zip(tenants, scores, strict=True):
            if score is not None and tenant in self._heard:
                self._heard[str(tenant)] = float(score)

    def _sum(self, tenant: str, lifts: dict[str, float], adds: dict[str, float]) -> float:
        heard = max(self._heard[tenant], lifts.get(tenant, 0.0))
        return heard + adds.get(tenant, 0.0)

    def _forget(self, tenant: str) -> None:
        for values in (self._heard, self._lifts, self._adds):
            values.pop(tenant, None)
