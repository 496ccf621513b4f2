"""What prompts are going to leave in caches, told to the other routers before workers' events do.

    expected here, and not known before -> told -> expected there, for LIFE_S -> expected no more
                                                '- the worker's events say more: they win

A prompt goes by its tokens, since other prompts are compared with those, and no further than
MAX_TOLD_TOKENS: what many have in common stands at the beginning. Of workers without KV events
this is all that other routers learn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from cluster.block_hash import TOKEN_BYTES
from cluster.deadline import Clock
from cluster.identity import WorkerKey
from cluster.process.loop_share import LoopShare
from router.index.open_expectations import Expectation
from router.index.prefix_index import PrefixIndex
from router.store.link import StoreCommand, StoreReply
from router.store.names import StoreNames
from router.store.topics import StoreTopic

LIFE_S = 180.0
MAX_TOLD_TOKENS = 4096
MAX_UNTOLD = 64
"""Between two ticks; of more the oldest are not told."""
MAX_KEPT = 1024
"""In the store, and open in each router: 16 MiB of tokens at most."""
MAX_READ = 128
"""In one tick."""
MAX_TOLD_WORKERS = 64
MAX_ROOT_BYTES = 64
"""BLAKE2b takes no longer key."""
MAX_ENTRY_BYTES = MAX_TOLD_TOKENS * TOKEN_BYTES + 64 * 1024
"""Of one prediction, with the names of its workers; a longer one is nobody's."""


class Prediction(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of one prompt."""

    workers: list[tuple[str, str]]
    """Ids and incarnations."""
    root: bytes
    packed: bytes

    @property
    def is_sound(self) -> bool:
        """False for what no router says: whoever may write to the store may have."""
        num_tokens, rest = divmod(len(self.packed), TOKEN_BYTES)
        is_short = num_tokens <= MAX_TOLD_TOKENS and len(self.workers) <= MAX_TOLD_WORKERS
        return is_short and not rest and len(self.root) <= MAX_ROOT_BYTES


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Prediction)


class Predictions:
    """A Topic. Bounded in the store, on its way and here; lost ones cost a request its way."""

    name = StoreTopic.PREDICTIONS

    def __init__(
        self,
        own_name: str,
        index: PrefixIndex,
        names: StoreNames,
        clock: Clock,
        share: LoopShare,
    ) -> None:
        self._own_name = own_name.encode()
        self._index = index
        self._key = names.of_fleet("predictions")
        self._clock = clock
        self._share = share
        self._untold: deque[bytes] = deque(maxlen=MAX_UNTOLD)
        self._read_to: bytes | None = None
        """The last that was read, as the store numbers them; None: begin LIFE_S ago."""
        self._open: deque[tuple[float, Expectation]] = deque()
        """In the order of their ends."""
        self.num_heard = 0
        index.watch(self._tell)

    @property
    def num_open(self) -> int:
        """Predictions of others that are believed."""
        return len(self._open)

    def ask(self) -> Sequence[StoreCommand]:
        """See Topic."""
        told, life_ms = list(self._untold), round(LIFE_S * 1000)
        self._untold.clear()
        limit = ("MAXLEN", "~", MAX_KEPT)
        commands: list[StoreCommand] = [
            ("XADD", self._key, *limit, "*", self._own_name, packed) for packed in told
        ]
        if told:
            commands.append(("PEXPIRE", self._key, life_ms))
        if self._read_to is None:
            return [*commands, ("TIME",)]
        return [*commands, ("XREAD", "COUNT", MAX_READ, "STREAMS", self._key, self._read_to)]

    async def heard(self, replies: Sequence[StoreReply]) -> None:
        """See Topic."""
        self._end_old()
        *_, last = replies
        if self._read_to is None:
            seconds, _ = last
            self._read_to = b"%d-0" % max(0, round((int(seconds) - LIFE_S) * 1000))
            return
        for number, fields in _entries_of(last):
            self._read_to = number
            await self._take(fields)

    def unheard(self, *, may_be_done: bool) -> None:
        """See Topic. What was not told stays so: events tell it."""
        self._end_old()

    def goodbye(self) -> Sequence[StoreCommand]:
        """See Topic."""
        return ()

    def _tell(self, workers: Sequence[WorkerKey], root: bytes, packed: bytes) -> None:
        keys = [(key.worker_id, key.incarnation) for key in workers[:MAX_TOLD_WORKERS]]
        beginning = packed[: MAX_TOLD_TOKENS * TOKEN_BYTES]
        self._untold.append(_encoder.encode(Prediction(keys, root, beginning)))

    async def _take(self, fields: Sequence[bytes]) -> None:
        """One entry: a router's name, and what it said."""
        name, packed, *_ = fields
        if name == self._own_name or len(packed) > MAX_ENTRY_BYTES:
            return
        try:
            told = _decoder.decode(packed)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return  # a router of another version
        await self._share.breathe()
        if told.is_sound:
            self._expect(told)

    def _expect(self, told: Prediction) -> None:
        keys = [WorkerKey(*names) for names in told.workers]
        expected = self._index.expect(keys, told.root, told.packed, is_told=True)
        self.num_heard += 1
        self._open.append((self._clock() + LIFE_S, expected))
        if len(self._open) > MAX_KEPT:
            self._end_first()

    def _end_old(self) -> None:
        now_s = self._clock()
        while self._open and self._open[0][0] <= now_s:
            self._end_first()

    def _end_first(self) -> None:
        self._open.popleft()[1].settle(came_true=False)


def _entries_of(reply: Any) -> list[tuple[bytes, Sequence[bytes]]]:
    """Of one stream; None where there is nothing new."""
    return reply[0][1] if reply else []
