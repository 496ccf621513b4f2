"""A router's word: all that it has given its workers, and what it believes of their caches.

It is whole each time: who says it twice changes nothing, and who is not heard any more has said
nothing. Requests have their ids, so that one which two routers name (it went on at another one)
counts once.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from cluster.identity import WorkerKey
from cluster.membership.hold import MAX_NUMBER, HoldKind, WorkerHold
from router.fleet.request_share import RequestShare
from router.index.worker_slots import DIGESTS
from router.pricing.estimates import Rests

VERSION = 1
"""Words of another one are passed over: their routers are seen, and what they say is not."""
MAX_WORD_BYTES = 1024 * 1024
"""A request takes some 50 bytes: 20,000 of them. A longer word names none."""


class CacheMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a router believes that a worker has cached, at one point of its events."""

    sequence: int
    """Of the last message of its events."""
    digest: int
    """The same in every router that believes the same."""
    num_blocks: int


class WorkerWord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of one worker process."""

    worker_id: str
    incarnation: str
    requests: dict[str, RequestShare]
    """By request id."""
    cache: CacheMark | None = None
    """None: its events have not been heard yet, or it has none."""

    @property
    def key(self) -> WorkerKey:
        """The process."""
        return WorkerKey(self.worker_id, self.incarnation)


class HoldWord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an operator has said of one worker: see WorkerHold."""

    kind: HoldKind
    number: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
    over_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """For how long it has been over."""

    @property
    def hold(self) -> WorkerHold:
        """It, as it is kept."""
        return WorkerHold(self.kind, self.number)


class RouterWord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of one router."""

    version: int
    workers: list[WorkerWord]
    load_digest: int = 0
    """Of all requests that any router has given any worker, as far as this one knows."""
    rests: Rests = Rests()
    """From which routers tell what a handoff costs."""
    waits: bool = False
    """It has a line: others leave it its part of the workers' seats."""
    beat: int = 0
    """Grows while the router lives, with time; 0: of a version that does not say it."""
    holds: dict[str, HoldWord] = {}
    """By worker id, with those that are over: a worker of another engine tells nobody."""

    @property
    def num_requests(self) -> int:
        """That it has given to workers; one at two of them counts once."""
        return len({name for worker in self.workers for name in worker.requests})

    @property
    def index_digest(self) -> int:
        """Of all caches that it knows."""
        return sum(worker.cache.digest for worker in self.workers if worker.cache) % DIGESTS


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RouterWord)


def packed_word(word: RouterWord) -> bytes:
    """As it goes to the store; without its requests where they are too many."""
    packed = _encoder.encode(word)
    if len(packed) <= MAX_WORD_BYTES:
        return packed
    silent = [msgspec.structs.replace(worker, requests={}) for worker in word.workers]
    return _encoder.encode(msgspec.structs.replace(word, workers=silent))


def word_of(packed: bytes) -> RouterWord | None:
    """None for what is no word, or none that is understood here."""
    try:
        word = _decoder.decode(packed)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return word if word.version == VERSION else None
