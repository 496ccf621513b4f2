"""The other routers of the fleet, as this one has heard them.

    heard -> there -> heard again ... -> silent for SILENT_S, while the store answers -> gone
               |- its word lies in the store unchanged for SILENT_S: it is dead or stands still, and
               |  what it had said is not believed; it is counted until its word ends
               '- the store is away -> still counted as there; after LEASE_S nothing of what they
                                       had said of their requests is believed any more

A store that was emptied has all words again within a tick or two: nobody is gone for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.identity import WorkerKey
from router.fleet.request_share import NOTHING_ELSEWHERE, GivenElsewhere, RequestShare
from router.sharing.word import VERSION, RouterWord, WorkerWord, word_of

LEASE_S = 10.0
"""How long a router's word holds in the store, and here while there is no store."""
SILENT_S = 1.0
"""More than a store that was emptied takes to be filled again."""

NOTHING_SAID = RouterWord(VERSION, [])


@dataclass(slots=True)
class _Other:
    packed: bytes
    word: RouterWord | None
    heard_s: float
    changed_s: float
    is_believed: bool = True

    def is_alive(self, now_s: float) -> bool:
        """By its beat, which changes its word."""
        has_no_beat = self.word is None or not self.word.beat
        return has_no_beat or now_s - self.changed_s <= SILENT_S


class OtherRouters:
    """Of one router; from the event loop only. Who is heard is bounded by who asks the store."""

    def __init__(self) -> None:
        self._others: dict[str, _Other] = {}
        self._given: dict[WorkerKey, dict[str, RequestShare]] = {}
        self._was_away = False
        """The store, when it was last asked."""

    @property
    def names(self) -> list[str]:
        """Those that are there, in order."""
        return sorted(self._others)

    @property
    def num_alive(self) -> int:
        """Routers of the fleet, with this one: at least 1. Limits are shared by so many while the
        store is away; then it is as many as were there before."""
        return 1 + len(self._others)

    def heard(self, words: Mapping[str, bytes], now_s: float) -> None:
        """What the store has of the others, by name."""
        if self._was_away:
            self._expect_all(now_s)
        is_news = False
        for name, packed in words.items():
            is_news |= self._has_news(name, packed, now_s)
        silent = [n for n, other in self._others.items() if now_s - other.heard_s > SILENT_S]
        for name in silent:
            del self._others[name]
        if is_news or silent:
            self._sum_up()

    def _has_news(self, name: str, packed: bytes, now_s: float) -> bool:
        other = self._others.get(name)
        if other is None or other.packed != packed:
            self._others[name] = _Other(packed, word_of(packed), now_s, now_s)
            return True
        other.heard_s = now_s
        was_believed, other.is_believed = other.is_believed, other.is_alive(now_s)
        return other.is_believed is not was_believed

    def unheard(self, now_s: float) -> None:
        """The store has not answered: what is as old as a lease is not believed any more."""
        self._was_away = True
        old = [o for o in self._others.values() if o.word and now_s - o.heard_s > LEASE_S]
        for other in old:
            other.packed, other.word = b"", None
        if old:
            self._sum_up()

    def given_to(self, worker: WorkerKey, own: Mapping[str, object]) -> GivenElsewhere:
        """What they have given it, but for requests that are this router's `own` by now."""
        requests = self._given.get(worker)
        if not requests:
            return NOTHING_ELSEWHERE
        return GivenElsewhere.sum_of(
            asked for request_id, asked in requests.items() if request_id not in own
        )

    @property
    def waiting(self) -> list[str]:
        """Names of those that have a line."""
        return [name for name, word in self.router_words() if word.waits]

    def words(self) -> Iterator[tuple[str, WorkerWord]]:
        """Each router's of each worker."""
        for name, word in self.router_words():
            for worker in word.workers:
                yield name, worker

    def router_words(self) -> Iterator[tuple[str, RouterWord]]:
        """Of all that are there, by name; of one that says nothing, or is not believed, that."""
        for name in self.names:
            other = self._others[name]
            yield name, (other.word if other.is_believed else None) or NOTHING_SAID

    def _expect_all(self, now_s: float) -> None:
        """The store is back, and may be empty: they have their time to be there again. The time
        without it counts for nobody's life: whose word stood still before has no more than it
        had."""
        self._was_away = False
        for other in self._others.values():
            other.changed_s += now_s - other.heard_s
            other.heard_s = now_s

    def _sum_up(self) -> None:
        self._given = {}
        for _, word in self.words():
            if word.requests:
                self._given.setdefault(word.key, {}).update(word.requests)
