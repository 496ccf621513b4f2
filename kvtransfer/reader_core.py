"""All reads of one reader, turn by turn: the reading thread's conductor, without the thread.

A peer that dies shows itself: its reads fail. A peer that hangs does not; then the deadline of a
read ends its reads by force (`Transport.abort`), so that every read ends, and ends drained.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import SplitserveError
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from kvtransfer.block_read import BlockRead, BlockReadState, ReadTools
from kvtransfer.read_job import ReadJob, ReadResult

DISCONNECT_GRACE_S = 1.0
"""Reads from a peer that is known to be gone may take this long to fail by themselves."""

_log = get_logger("kvtransfer")


class ReaderCore:
    """Owned by one thread. `clock` gives monotonic seconds."""

    def __init__(self, tools: ReadTools, *, timeout_s: float, clock: Callable[[], float]) -> None:
        self._tools = tools
        self._timeout_s = timeout_s
        self._clock = clock
        self._reads: list[BlockRead] = []
        self._known: dict[str, KvPeer] = {}
        self._refused: dict[str, str] = {}
        self._leaving: set[str] = set()

    @property
    def num_reads(self) -> int:
        """Reads that have not ended."""
        return len(self._reads)

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """A failure is kept: reads from this peer will report it. Again the same is nothing."""
        known = self._known.get(incarnation)
        if known not in (None, peer) and self._reads_from(incarnation):
            self._abort(incarnation, f"{incarnation} has another pool now")
        self._leaving.discard(incarnation)
        self._refused.pop(incarnation, None)
        self._known[incarnation] = peer
        try:
            self._tools.transport.connect(incarnation, peer)
        except SplitserveError as error:
            _log.warning("cannot connect", incarnation=incarnation, error=error.message)
            self._refused[incarnation] = error.message

    def disconnect(self, incarnation: str) -> None:
        """The peer is gone: its reads end now, or within the grace when reads are in flight."""
        self._refused.pop(incarnation, None)
        self._leaving.add(incarnation)
        limit = self._clock() + DISCONNECT_GRACE_S
        for read in self._reads_from(incarnation):
            read.give_up(f"{incarnation} is gone")
            read.deadline = min(read.deadline, limit)

    def add(self, job: ReadJob) -> None:
        """Starts at the next turn. Its deadline counts from here."""
        read = BlockRead(job, self._tools, deadline=self._clock() + self._timeout_s)
        if job.incarnation in self._refused:
            read.give_up(self._refused[job.incarnation])
        self._reads.append(read)

    def cancel(self, request_id: str) -> None:
        """The request's reads end as soon as nothing is in flight for them."""
        for read in self._reads:
            if read.job.request_id == request_id:
                read.give_up("cancelled")

    def turn(self) -> tuple[list[ReadResult], bool]:
        """One step of every read; returns what ended, and whether anything moved."""
        now = self._clock()
        moved = [self._advance(read, now) for read in self._reads]
        self._enforce_deadlines(now)
        results = [read.result() for read in self._reads if read.state is BlockReadState.ENDED]
        self._reads = [read for read in self._reads if read.state is not BlockReadState.ENDED]
        self._finish_leaving()
        return results, any(moved) or bool(results)

    def close(self) -> list[ReadResult]:
        """Ends everything by force."""
        for read in self._reads:
            read.give_up("this worker is shutting down")
        self._tools.transport.close()
        return self.turn()[0]

    def _advance(self, read: BlockRead, now: float) -> bool:
        """A bug met on the way of one read ends that read alone."""
        try:
            return read.advance(now)
        except Exception as error:
            _log.exception("a read failed", request_id=read.job.request_id)
            read.give_up(f"internal error: {type(error).__name__}")
            return True

    def _enforce_deadlines(self, now: float) -> None:
        for read in self._reads:
            if read.state is BlockReadState.ENDED or now < read.deadline:
                continue
            incarnation, hangs = read.job.incarnation, read.is_in_flight
            read.give_up(f"no answer from {incarnation} within {self._timeout_s} s")
            if hangs:
                self._abort(incarnation, f"{incarnation} hangs and was cut off")
            self._advance(read, now)

    def _abort(self, incarnation: str, error: str) -> None:
        _log.warning("reads are ended by force", incarnation=incarnation, reason=error)
        for read in self._reads_from(incarnation):
            read.give_up(error)
        self._tools.transport.abort(incarnation)
        for read in self._reads:
            if read.job.incarnation != incarnation:
                read.resume_interrupted()

    def _finish_leaving(self) -> None:
        for incarnation in list(self._leaving):
            if not self._reads_from(incarnation):
                self._leaving.remove(incarnation)
                self._known.pop(incarnation, None)
                self._tools.transport.disconnect(incarnation)

    def _reads_from(self, incarnation: str) -> list[BlockRead]:
        return [read for read in self._reads if read.job.incarnation == incarnation]
