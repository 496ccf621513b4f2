"""What this router says of its workers, and what it makes of what others say."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Protocol
from zlib import crc32

from cluster.deadline import Clock
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from router.fleet.event_followers import EventFollowers
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.seat_part import SeatPart
from router.index.prefix_index import PrefixIndex
from router.index.worker_slots import DIGESTS
from router.pricing.estimates import Estimates
from router.sharing.agreement import Agreement
from router.sharing.others import OtherRouters
from router.sharing.word import VERSION, CacheMark, HoldWord, RouterWord, WorkerWord, packed_word

DIGEST_EVERY_S = 1.0
BEAT_S = 0.25
"""A word that is the same for longer is of a router that is dead or stands still."""
_log = get_logger("router.sharing")


class WaitingLine(Protocol):
    """Requests that wait for the fleet: `router.dispatch.admission`."""

    @property
    def num_queued(self) -> int:
        """That wait."""
        ...

    def look(self) -> None:
        """There may be room."""
        ...


class FleetWords:
    """Tells `FleetMember.hear_elsewhere`, `Estimates` and the line; all else is asked."""

    def __init__(
        self,
        own_name: str,
        fleet: Fleet,
        index: PrefixIndex,
        followers: EventFollowers,
        others: OtherRouters,
        estimates: Estimates,
        clock: Clock,
    ) -> None:
        self._own_name = own_name
        self._fleet = fleet
        self._index = index
        self._followers = followers
        self._others = others
        self._estimates = estimates
        self._clock = clock
        self._digest = 0
        self._digest_until_s = -inf
        self.agreement = Agreement()
        self.line: WaitingLine | None = None
        """Of this router, once it has one."""

    def own_word(self) -> RouterWord:
        """What this router says now."""
        words = [self._word_of(item) for item in self._fleet.members]
        waits = self.line is not None and self.line.num_queued > 0
        rests, beat = self._estimates.rests(), 1 + int(self._clock() / BEAT_S)
        holds = self._hold_words()
        return RouterWord(VERSION, words, self._load_digest(), rests, waits, beat, holds)

    def packed(self) -> bytes:
        """It, for the others."""
        word = self.own_word()
        self.agreement.believed({each.key: each.cache for each in word.workers if each.cache})
        return packed_word(word)

    def take_in(self) -> None:
        """What others have said has changed, or may have."""
        waiting, num_routers = self._others.waiting, self._others.num_alive
        for item in self._fleet.members:
            part = SeatPart.of_router(self._own_name, waiting, item.key, num_routers)
            item.hear_elsewhere(self._others.given_to(item.key, item.given), part)
        if self.line is not None and self.line.num_queued:
            self.line.look()
        for _, said in self._others.router_words():
            for worker_id, told in said.holds.items():
                self._fleet.holds.hear(worker_id, told.hold, told.over_s)
        self._estimates.hear([word.rests for _, word in self._others.router_words()])
        for name, worker in self.agreement.compare(self._others.words(), self._clock()):
            _log.warning(
                "another router believes something else of a worker's cache",
                router=name,
                worker_id=worker.worker_id,
            )

    def missing(self) -> frozenset[WorkerKey]:
        """Workers that another router has, and this one has not."""
        own = {item.key for item in self._fleet.members}
        return frozenset(word.key for _, word in self._others.words() if word.key not in own)

    def _hold_words(self) -> dict[str, HoldWord]:
        holds = self._fleet.holds
        return {
            worker_id: HoldWord(hold.kind, hold.number, holds.over_s(worker_id))
            for worker_id, hold in holds.known.items()
        }

    def _word_of(self, item: FleetMember) -> WorkerWord:
        key, given = item.key, item.given
        requests = {request_id: share.asked for request_id, share in given.items()}
        return WorkerWord(key.worker_id, key.incarnation, requests, self._mark_of(key))

    def _mark_of(self, worker: WorkerKey) -> CacheMark | None:
        if (position := self._followers.position_of(worker)) is None:
            return None
        digest, num_blocks = self._index.digest_of(worker), self._index.num_blocks_of(worker)
        return CacheMark(position, digest, num_blocks)

    def _load_digest(self) -> int:
        """Of all requests that any router has given any worker: as of the last second, for of
        some thousands it takes a millisecond."""
        now_s = self._clock()
        if now_s >= self._digest_until_s:
            self._digest_until_s = now_s + DIGEST_EVERY_S
            ids: dict[WorkerKey, set[str]] = {i.key: set(i.given) for i in self._fleet.members}
            for _, word in self._others.words():
                ids.setdefault(word.key, set()).update(word.requests)
            self._digest = sum(digest_of(key, names) for key, names in ids.items()) % DIGESTS
        return self._digest


def digest_of(worker: WorkerKey, request_ids: Iterable[str]) -> int:
    """The same in whatever order they come."""
    of_worker = crc32(f"{worker.worker_id} {worker.incarnation}".encode())
    return of_worker * sum(map(crc32, map(str.encode, request_ids))) % DIGESTS
