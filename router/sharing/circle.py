"""All routers of one fleet, seen from one of them: put together where a store is named."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from cluster.identity import UniqueHex, unique_hex
from cluster.process.background import Background
from cluster.process.loop_share import LoopShare
from cluster.world import World
from protos import membership_pb2
from router.fairness.served_tokens import ServedTokens
from router.fleet.event_followers import EventFollowers
from router.fleet.fleet import Fleet
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from router.sharing.agreement import Pair
from router.sharing.fleet_words import FleetWords, WaitingLine
from router.sharing.others import OtherRouters
from router.sharing.predictions import Predictions
from router.sharing.talk import RouterTalk, Store
from router.sharing.words import RouterWords
from router.tenants.priority import NUM_LEVELS


@dataclass(frozen=True, slots=True)
class CirclePlace:
    """Where this router meets the others, and as who."""

    name: str
    """No other process has it."""
    store: Store


def own_name(port: int, draw: UniqueHex = unique_hex) -> str:
    """For operators: the machine and the port at which workers join; and what no other has."""
    return f"{socket.gethostname()}:{port}/{draw()[:8]}"


class Circle:
    """Of one router. From the event loop; `start` once, then `close` once."""

    def __init__(
        self,
        place: CirclePlace,
        fleet: Fleet,
        index: PrefixIndex,
        followers: EventFollowers,
        estimates: Estimates,
        world: World,
        share: LoopShare,
    ) -> None:
        self.name = place.name
        self._others = OtherRouters()
        self._view = FleetWords(
            place.name, fleet, index, followers, self._others, estimates, world.clock
        )
        names, clock = place.store.names, world.clock
        view, others = self._view, self._others
        words = RouterWords(place.name, view.packed, others, names, clock, view.take_in)
        self.predictions = Predictions(place.name, index, names, clock, share)
        self.served = ServedTokens(names, NUM_LEVELS, lambda: place.store.is_there)
        topics = (words, self.predictions, self.served)
        self._talk = RouterTalk(place.store, topics, world.sleep)

    @property
    def num_alive(self) -> int:
        """Routers that are there, with this one; while the store is away, those that were."""
        return self._others.num_alive

    @property
    def others(self) -> list[str]:
        """Their names, in order."""
        return self._others.names

    @property
    def disagreeing(self) -> tuple[Pair, ...]:
        """Who believes something else, and of which worker's cache."""
        return self._view.agreement.disagreeing

    @property
    def index_digest(self) -> int:
        """Of all caches that are known here."""
        return self._view.own_word().index_digest

    @property
    def load_digest(self) -> int:
        """Of all requests that any router has given any worker."""
        return self._view.own_word().load_digest

    def states(self) -> list[membership_pb2.RouterState]:
        """All routers, for operators: this one first, then the others by name."""
        doubted: dict[str, list[str]] = {}
        for name, worker in self.disagreeing:
            doubted.setdefault(name, []).append(worker.worker_id)
        words = [(self.name, self._view.own_word()), *self._others.router_words()]
        return [
            membership_pb2.RouterState(
                name=name,
                num_in_flight=word.num_requests,
                index_digest=word.index_digest,
                load_digest=word.load_digest,
                doubted=sorted(doubted.get(name, ())),
            )
            for name, word in words
        ]

    def why_not_whole(self) -> str | None:
        """None when every worker that another router has is here as well; else in words."""
        missing = len(self._view.missing())
        return f"{missing} workers of other routers have not joined here" if missing else None

    def tells_of(self, line: WaitingLine) -> None:
        """Before `start`: others leave this router its part while somebody waits in it, and it is
        looked over when they have said something new."""
        self._view.line = line

    def start(self, background: Background) -> None:
        """Begins to talk."""
        background.keep("other routers", self._talk.run)

    async def close(self) -> None:
        """Says goodbye; after `background` is closed, and before the store is."""
        await self._talk.close()
