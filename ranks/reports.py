"""What ranks tell their conductor: typed messages, one way, on whatever hosts they are.

rank        ReportSender.send(Progress | Arrived | PartLoaded | RankReady | Word | RankFailed)
conductor   ReportInbox.take()    what has come; of another generation, or of no rank, nothing
"""

from __future__ import annotations

import logging

import msgspec
import zmq

from cluster.errors import InternalError, RankLost
from cluster.rank_facts import RankFacts
from ranks.channels import ChannelKeys, Channels, address_of, speak_to

_log = logging.getLogger("splitserve.ranks")


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """While it starts: what it is at, for people, as LoadProgress, when that changes. That it lives
    meanwhile its beats tell."""

    phase: str
    fraction: float


class Arrived(msgspec.Struct, frozen=True, tag=True):
    """Once: it has its ties to the conductor, and joins the others when all have."""


class PartLoaded(msgspec.Struct, frozen=True, tag=True):
    """Once: it has read its weights."""


class RankReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Once: it has all of its part, and takes plans."""

    facts: RankFacts
    extension: bytes = b""
    """Opaque here: what a rank's extension tells the conductor's as it begins."""


class Word(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Opaque here: from a rank's extension to the conductor's. In order, among those of one
    rank."""

    body: bytes


class RankFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last word: why it cannot start, or go on. It exits with code 1 after it."""

    code: str
    message: str


Said = Progress | Arrived | PartLoaded | RankReady | Word | RankFailed


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has said."""

    rank: int
    generation: int
    said: Said


MAX_REPORT_BYTES = 16 << 20
"""Words of extensions are the longest: some hundred kilobytes."""
_MOST_AT_ONCE = 256
"""Messages that are read in one turn of the engine; the rest waits for the next one."""


class ReportSender:
    """A rank's end, of one thread. What is sent waits in memory until the conductor reads it."""

    def __init__(
        self, address: str, rank: int, generation: int, keys: ChannelKeys | None = None
    ) -> None:
        """All are the launch's."""
        self._rank, self._generation = rank, generation
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = speak_to(self._context, zmq.PUSH, address, keys)
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, said: Said) -> None:
        """Never blocks. Raises RankLost where the conductor has read none of many."""
        report = RankReport(rank=self._rank, generation=self._generation, said=said)
        packed = self._encoder.encode(report)
        if len(packed) > MAX_REPORT_BYTES:
            raise InternalError(
                f"a report of {len(packed)} bytes; the conductor takes {MAX_REPORT_BYTES}"
            )
        try:
            self._socket.send(packed, zmq.NOBLOCK)
        except zmq.Again:
            raise RankLost(
                "the conductor takes no reports any more; the group is started anew", ranks=(0,)
            ) from None

    def close(self, linger_ms: int = 1000) -> None:
        """Waits at most so long for the last reports to leave. Idempotent."""
        self._socket.close(linger=linger_ms)
        self._context.term()


class ReportInbox:
    """The conductor's end, of one thread."""

    def __init__(self, channels: Channels, *, world_size: int, generation: int) -> None:
        self._ranks, self._generation = range(1, world_size), generation
        self._socket = channels.listen(zmq.PULL, "reports", max_message_bytes=MAX_REPORT_BYTES)
        self.address = address_of(self._socket)
        self._num_dropped = 0
        self._decoder: msgspec.msgpack.Decoder[RankReport] = msgspec.msgpack.Decoder(RankReport)

    def take(self, timeout_s: float = 0.0) -> list[RankReport]:
        """What is there, some hundred at most; waits so long for the first. What nobody can read,
        or is of another generation, or of no rank of this group, is dropped, and said."""
        if timeout_s and not self._socket.poll(max(1, round(timeout_s * 1e3))):
            return []
        found: list[RankReport] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                packed = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            report = self._read(packed)
            if report is not None:
                found.append(report)
        return found

    def close(self) -> None:
        """Idempotent."""
        self._socket.close(linger=0)

    def _read(self, packed: bytes) -> RankReport | None:
        try:
            report = self._decoder.decode(packed)
        except msgspec.MsgspecError as error:
            self._drop(f"its {len(packed)} bytes cannot be read: {error}")
            return None
        if report.generation == self._generation and report.rank in self._ranks:
            return report
        self._drop(f"it is of rank {report.rank} of generation {report.generation}")
        return None

    def _drop(self, why: str) -> None:
        """Said of the first, the second, the fourth and so on: one line for many."""
        self._num_dropped += 1
        if self._num_dropped.bit_count() == 1:
            _log.warning(
                "a report to generation %d was dropped, the %d. so far: %s",
                *(self._generation, self._num_dropped, why),
            )
