"""Which adapters the fleet has, by the names that clients ask for.

A name may stand for different versions while workers load a new one, each at its own time. Requests
get the one that most workers have that could answer them when they are sent, of equals the one that
came later; one that has begun goes on with its own. Decode workers answer with text, prefill
workers that pool with embeddings and scores.

The model's own name is no adapter's, whatever workers call theirs: they do not know by which name
clients ask this router for the model.

A name is gone once a worker that had it says that it has it no more. Where all that had it have
left instead, it is still a model for a while: its requests wait for a worker, as the base model's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from cluster.adapter import NOTHING_UNREAD, Adapter, UnreadAdapters
from cluster.deadline import Clock
from cluster.identity import Role, WorkerKey
from cluster.logs import get_logger
from router.fleet.first_look import HEAR_ALL_S
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember

REMEMBERED_S: Final = 600.0
"""Of a name whose workers have all left: longer than one takes to start anew and load its model."""
_log = get_logger("adapters")


@dataclass(frozen=True, slots=True)
class _Left:
    """A name whose workers have all left."""

    adapter: Adapter
    until_s: float


class FleetAdapters:
    """Of one router. From the event loop; looks anew when the fleet has changed."""

    def __init__(self, fleet: Fleet, clock: Clock, *, model_name: str = "") -> None:
        """`model_name`: see OwnModel."""
        self._fleet, self._clock, self._model_name = fleet, clock, model_name
        self._began_s: float | None = None
        self._of_text = _Versions(clock, model_name)
        self._of_pooling = _Versions(clock, model_name)
        self._unread = NOTHING_UNREAD
        self._is_current = False
        self._has_warned = False
        fleet.changes.watch(self._forget)

    def begin(self) -> None:
        """Workers may come from now on."""
        self._began_s = self._clock()

    def find(self, name: str, *, is_pooled: bool = False) -> Adapter | None:
        """What the name stands for, asked for text, or for an embedding or a score; None: for
        nothing. Whether a worker is there that has it, a request finds out when it is sent."""
        of = self._versions(is_pooled)
        return of.chosen.get(name) or of.lately().get(name)

    def offered(self, name: str, *, is_pooled: bool = False) -> Adapter | None:
        """What a request by that name is sent with; None: no worker that takes work, and could
        answer, has it."""
        return self._versions(is_pooled).chosen.get(name)

    def find_pooling(self, name: str) -> Adapter | None:
        """As `find`, for an embedding or a score."""
        return self.find(name, is_pooled=True)

    def unread(self) -> UnreadAdapters:
        """What workers may offer soon that could answer, and are to stay. At a router that has just
        started any name: workers that had it may not have come back yet."""
        self._look()
        is_new = self._began_s is None or self._clock() - self._began_s < HEAR_ALL_S
        return UnreadAdapters(self._unread.names, may_be_any=True) if is_new else self._unread

    def all(self) -> list[Adapter]:
        """By name."""
        text, pooling = self._versions(False), self._of_pooling
        known = pooling.lately() | text.lately() | pooling.chosen | text.chosen
        return [known[name] for name in sorted(known)]

    def _versions(self, is_pooled: bool) -> _Versions:
        self._look()
        return self._of_pooling if is_pooled else self._of_text

    def _look(self) -> None:
        if not self._is_current:
            self._is_current = True
            self._of_text.look(self._fleet.open(Role.DECODE))
            self._of_pooling.look([i for i in self._fleet.open(Role.PREFILL) if i.pooling])
            staying = (i for i in self._fleet.members if i.answers and not i.is_left)
            self._unread = _all_of([item.state.unread_adapters for item in staying])
            self._warn()

    def _warn(self) -> None:
        """Once: nobody who has put it there is told otherwise."""
        if self._has_warned or not self._model_name:
            return
        for member in self._fleet.members:
            if any(item.adapter.name == self._model_name for item in member.state.adapters):
                self._has_warned = True
                _log.warning(
                    "a worker has an adapter by the name of the model itself, which requests by it "
                    "get; give the adapter another",
                    name=self._model_name,
                    worker_id=member.key.worker_id,
                )
                return

    def _forget(self) -> None:
        self._is_current = False


def _all_of(told: list[UnreadAdapters]) -> UnreadAdapters:
    return UnreadAdapters(
        names=frozenset[str]().union(*(each.names for each in told)),
        may_be_any=any(each.may_be_any for each in told),
    )


class _Versions:
    """Of those that could answer one kind of request."""

    def __init__(self, clock: Clock, model_name: str) -> None:
        self._clock, self._model_name = clock, model_name
        self.chosen: dict[str, Adapter] = {}
        self._first_seen: dict[Adapter, int] = {}
        self._num_seen = 0
        self._holders: dict[str, set[WorkerKey]] = {}
        """By name: at the last look."""
        self._left: dict[str, _Left] = {}

    def look(self, members: list[FleetMember]) -> None:
        """What they have now."""
        self._note_left(members)
        held = Counter(adapter for member in members for adapter in self._adapters_of(member))
        seen = {adapter: at for adapter, at in self._first_seen.items() if adapter in held}
        for adapter in held:
            if adapter not in seen:
                self._num_seen += 1
                seen[adapter] = self._num_seen
        self._first_seen = seen
        self.chosen = {}
        for adapter in sorted(held, key=lambda each: (held[each], seen[each])):
            self.chosen[adapter.name] = adapter

    def lately(self) -> dict[str, Adapter]:
        """Names whose workers have all left, a while ago at most."""
        now_s = self._clock()
        self._left = {name: left for name, left in self._left.items() if now_s < left.until_s}
        return {name: left.adapter for name, left in self._left.items()}

    def _adapters_of(self, member: FleetMember) -> list[Adapter]:
        told = (item.adapter for item in member.state.adapters)
        return [adapter for adapter in told if adapter.name != self._model_name]

    def _note_left(self, members: list[FleetMember]) -> None:
        """Which names have no worker any more, and for want of workers only."""
        holders: dict[str, set[WorkerKey]] = {}
        for member in members:
            for adapter in self._adapters_of(member):
                holders.setdefault(adapter.name, set()).add(member.key)
        there = {member.key for member in members}
        for name in self._holders.keys() - holders.keys():
            if not self._holders[name] & there:
                self._left[name] = _Left(self.chosen[name], self._clock() + REMEMBERED_S)
        for name in holders:
            self._left.pop(name, None)
        self._holders = holders
