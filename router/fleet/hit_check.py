"""Whether workers have cached what the index believes of them.

    a prompt was computed: tokens that were expected to be cached there, tokens that were
      -> share that comes true: what is believed of it counts for so much of a price
      -> far from it, either way: the worker is asked for all that it has, and judged anew

It is not asked where ranks have caches of their own (cluster/block_homes.py): a prompt may be
computed beside its prefix, by a worker whose every word is true.

An event that was lost unseen, or a block that a worker dropped and did not speak of, would
otherwise draw every prompt of a prefix to a worker that has to compute it.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.deadline import Clock, Deadline
from cluster.identity import WorkerKey
from router.fleet.event_followers import EventFollowers
from router.fleet.hit_trust import HitTrust
from router.fleet.member import FleetMember

MIN_BETWEEN_S = 30.0
"""Between two questions to one worker: an answer may be as large as its cache."""


class HitCheck:
    """Of a fleet. All calls from the event loop. `find`: a member, or None."""

    def __init__(
        self,
        find: Callable[[WorkerKey], FleetMember | None],
        followers: EventFollowers,
        clock: Clock,
    ) -> None:
        self._find = find
        self._followers = followers
        self._clock = clock
        self._next: dict[WorkerKey, Deadline] = {}
        """When one that was asked may be asked again."""

    def compared(self, key: WorkerKey, *, expected_tokens: int, found_tokens: int) -> None:
        """A prompt was computed by a worker; both of what it had cached of it."""
        item = self._find(key)
        if item is None:
            return
        item.hits.compared(expected_tokens, found_tokens)
        if _is_doubtful(item) and self._may_ask(key):
            self._next[key] = Deadline.after(MIN_BETWEEN_S, self._clock)
            item.hits = HitTrust()
            self._followers.learn_anew(item)

    def doubted(self, key: WorkerKey) -> None:
        """Nothing that the worker has cached by now will be found any more."""
        if (item := self._find(key)) is not None:
            item.hits = HitTrust()
            self._followers.learn_anew(item)

    def forget(self, key: WorkerKey) -> None:
        """The process is gone."""
        self._next.pop(key, None)

    def _may_ask(self, key: WorkerKey) -> bool:
        asked = self._next.get(key)
        return asked is None or asked.has_passed


def _is_doubtful(item: FleetMember) -> bool:
    """Of a worker without events, what others had it compute is unknown here by rights."""
    if item.load.home_blocks_left:
        return False
    hears_all = item.follower is not None
    return item.hits.believes_too_much or (hears_all and item.hits.knows_too_little)
