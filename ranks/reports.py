"""What ranks tell their conductor: typed messages, one way, on whatever hosts they are.

rank        ReportSender.send(RankReady | Progress | Word | LogLines | RankFailed)
conductor   ReportInbox.take()    all that has come; of another generation nothing
"""

from __future__ import annotations

import logging

import msgspec
import zmq

_log = logging.getLogger("splitserve.ranks")


class RankReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What every message says first."""

    rank: int
    generation: int


class RankReady(RankReport, frozen=True, kw_only=True):
    """Once: it has loaded its part, and takes plans."""

    pid: int
    device: str
    """As torch names it: cpu, cuda:0."""
    num_blocks: int
    """Of the pool: the same at every rank."""
    kv_heads: list[int]
    """Those of the model whose keys and values it keeps."""
    weight_bytes: int
    kv_bytes: int
    peak_bytes: int
    """Of memory of this process, or of its device, until now."""
    extension: bytes = b""
    """Opaque here: what a rank's extension tells the conductor's as it begins."""


class Progress(RankReport, frozen=True, kw_only=True):
    """While it starts: what it is at, as LoadProgress. A rank says something at least every
    second while it loads."""

    phase: str
    fraction: float


class Word(RankReport, frozen=True, kw_only=True):
    """Opaque here: from a rank's extension to the conductor's. In order, among those of one
    rank."""

    body: bytes


class LogLines(RankReport, frozen=True, kw_only=True):
    """Of a rank whose standard error is not the worker's own."""

    lines: bytes


class RankFailed(RankReport, frozen=True, kw_only=True):
    """The last word: why it cannot start, or go on. It exits with code 1 after it."""

    code: str
    message: str


AnyReport = RankReady | Progress | Word | LogLines | RankFailed


class ReportSender:
    """A rank's end, of one thread. What is sent waits in memory until the conductor reads it."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.set_hwm(0)
        self._socket.connect(address)
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, report: AnyReport) -> None:
        """Never blocks."""
        self._socket.send(self._encoder.encode(report))

    def close(self, linger_ms: int = 1000) -> None:
        """Waits at most so long for the last reports to leave. Idempotent."""
        self._socket.close(linger=linger_ms)
        self._context.term()


class ReportInbox:
    """The conductor's end, of one thread."""

    def __init__(self, address: str, generation: int) -> None:
        """`address`: a ZMQ endpoint to bind; of TCP without a port, which becomes a free one."""
        self._generation = generation
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.set_hwm(0)
        self._socket.bind(f"{address}:0" if address.startswith("tcp:") else address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._decoder: msgspec.msgpack.Decoder[AnyReport] = msgspec.msgpack.Decoder(AnyReport)

    def take(self, timeout_s: float = 0.0) -> list[AnyReport]:
        """All that is there; waits so long for the first. What nobody can read, or is of another
        generation, is dropped, with a line in the log."""
        if timeout_s and not self._socket.poll(max(1, round(timeout_s * 1e3))):
            return []
        found: list[AnyReport] = []
        while True:
            try:
                packed = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return found
            report = self._read(packed)
            if report is not None:
                found.append(report)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close(linger=0)
        self._context.term()

    def _read(self, packed: bytes) -> AnyReport | None:
        try:
            report = self._decoder.decode(packed)
        except msgspec.MsgspecError as error:
            _log.warning("a rank's report of %d bytes cannot be read: %s", len(packed), error)
            return None
        if report.generation != self._generation:
            _log.warning(
                "rank %d of generation %d still reports; this group is generation %d",
                *(report.rank, report.generation, self._generation),
            )
            return None
        return report
