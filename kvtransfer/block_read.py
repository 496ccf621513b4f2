"""One job on its way: bytes, then digests, then generations.

    QUEUED --> READING ------------> CHECKING -----------------> ENDED
                 ^ bytes, digests        | generations  ^
                 '------- once more -----'              '- from every state, when it fails

Bytes are read in spans, so that a span is verified while the next one travels and while it is in
the cache. A block whose slot has another generation by now was given away: it is dropped. One with
the right generation and the wrong digest is read once more, and then refused.

ENDED is only reached when no read is in flight: whatever happens, nothing lands afterwards. A read
that is BROKEN is in flight until the reader has cut its peer off.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from cluster.errors import TransferFailed
from kvtransfer.job_blocks import JobBlocks, job_blocks
from kvtransfer.local_pool import LocalPool
from kvtransfer.peer_link import PeerLink
from kvtransfer.read_job import ReadJob, ReadResult, runs_of
from kvtransfer.transport import Read, ReadState, Transport
from kvtransfer.verification import Digest, announced_digests, own_digests

MAX_READINGS = 2
"""A block that is wrong twice is wrong at its source."""

MAX_SPANS_PER_JOB = 4
"""Hides the link's latency; of one job, the others have their own."""


class BlockReadState(enum.Enum):
    """See the module's drawing."""

    QUEUED = "queued"
    READING = "reading"
    CHECKING = "checking"
    ENDED = "ended"


_NEXT = {
    BlockReadState.QUEUED: {BlockReadState.READING, BlockReadState.ENDED},
    BlockReadState.READING: {BlockReadState.CHECKING, BlockReadState.ENDED},
    BlockReadState.CHECKING: {BlockReadState.READING, BlockReadState.ENDED},
    BlockReadState.ENDED: set(),
}


@dataclass(slots=True)
class ReadInFlight:
    """A read and the positions in the job that it is for."""

    read: Read
    positions: list[int]
    of_generations: bool
    state: ReadState = ReadState.PENDING
    """At the last look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTools:
    """What every job of a reader works with."""

    transport: Transport
    pool: LocalPool
    digest: Digest | None
    """None: digests are not checked, generations are."""
    span_blocks: int


class BlockRead:
    """Belongs to the reading thread. `advance` is called until the state is ENDED."""

    def __init__(self, job: ReadJob, tools: ReadTools, link: PeerLink) -> None:
        self.job = job
        self.link = link
        self.is_abandoned = False
        """Its request has given the peer up, and waits only for this read to end."""
        self.state = BlockReadState.QUEUED
        self._tools = tools
        self._job_blocks: JobBlocks | None = None
        self._to_read: deque[list[int]] = deque()
        self._in_flight: list[ReadInFlight] = []
        self._matched: set[int] = set()
        self._mismatched: set[int] = set()
        self._verified: set[int] = set()
        self._num_moved = 0
        self._num_readings = 0
        self._num_bytes = 0
        self._started: float | None = None
        self._ended = 0.0
        self._error = job.problem()

    @property
    def is_broken(self) -> bool:
        """True when the library has given a read up without ending it."""
        return any(flight.state is ReadState.BROKEN for flight in self._in_flight)

    @property
    def error(self) -> str:
        """Why it is being given up; empty when it is not."""
        return self._error

    def give_up(self, error: str) -> None:
        """Posts nothing more; ends as soon as nothing is in flight. The first error stays."""
        self._error = self._error or error

    def advance(self, now: float) -> bool:
        """Takes one step, at most one span; False when there was nothing to do but to wait."""
        progress = self._collect()
        if self._error:
            self._to_read.clear()
            if not self._in_flight:
                self._end(now)
                return True
            return progress
        try:
            return self._step(now) or progress
        except TransferFailed as error:
            self.give_up(error.message)
            return True

    def resume_interrupted(self) -> None:
        """After an abort on account of another peer: what was cut off is read again.

        Raises what the transport raises; the reads that could not be posted are not in flight.
        """
        cut = [flight for flight in self._in_flight if flight.read.poll() is ReadState.FAILED]
        for flight in cut:
            self._remove(flight)
        for flight in cut:
            if not self._error:
                self._post_again(flight)

    def result(self) -> ReadResult:
        """Of an ended read."""
        started = self._ended if self._started is None else self._started
        return ReadResult(
            job=self.job,
            verified=runs_of(self.job.first_index, self._verified),
            num_bytes=self._num_bytes,
            duration_ms=(self._ended - started) * 1e3,
            error=self._error,
        )

    def _step(self, now: float) -> bool:
        if self.state is BlockReadState.QUEUED:
            if not self.link.has_room:
                return False
            self._started = now
            self._job_blocks = job_blocks(self.job, self.link.fit, self._tools.pool.num_blocks)
            self._read(range(self.job.num_blocks))
        if self._may_post():
            self._post_blocks(self._to_read.popleft())
            self._collect()
            return True
        if self.state is BlockReadState.READING and not self._in_flight and not self._to_read:
            self._move_to(BlockReadState.CHECKING)
            self._post_generations(sorted(self._matched | self._mismatched))
            self._collect()
            return True
        if self.state is BlockReadState.CHECKING and not self._in_flight:
            self._judge(now)
            return True
        return False

    def _may_post(self) -> bool:
        has_room = len(self._in_flight) < MAX_SPANS_PER_JOB and self.link.has_room
        return bool(self._to_read) and has_room

    def _read(self, positions: Iterable[int]) -> None:
        self._move_to(BlockReadState.READING)
        self._num_readings += 1
        wanted, size = sorted(positions), self._tools.span_blocks
        self._to_read.extend(wanted[i : i + size] for i in range(0, len(wanted), size))

    def _post_blocks(self, positions: list[int]) -> None:
        slots = self._blocks.slots(positions)
        read = self._tools.transport.read_blocks(self.job.incarnation, *slots)
        self._await_landing(ReadInFlight(read, positions, of_generations=False))

    def _post_generations(self, positions: list[int]) -> None:
        rows = self._blocks.generations(positions)
        read = self._tools.transport.read_generations(self.job.incarnation, *rows)
        self._await_landing(ReadInFlight(read, positions, of_generations=True))

    def _post_again(self, flight: ReadInFlight) -> None:
        if flight.of_generations:
            self._post_generations(flight.positions)
        else:
            self._to_read.appendleft(flight.positions)

    def _await_landing(self, flight: ReadInFlight) -> None:
        self._in_flight.append(flight)
        self.link.posted()

    def _remove(self, flight: ReadInFlight) -> None:
        self._in_flight.remove(flight)
        self.link.landed()

    def _collect(self) -> bool:
        """Takes in the reads that are over."""
        num_removed = 0
        for flight in list(self._in_flight):
            flight.state = flight.read.poll()
            if flight.read.error:
                self.give_up(flight.read.error)
            if flight.state.is_final:
                num_removed += 1
                self._remove(flight)
                self._take(flight)
        return num_removed > 0

    def _take(self, flight: ReadInFlight) -> None:
        if flight.read.error or flight.of_generations:
            return
        num_granules = self._blocks.num_granules(flight.positions)
        self._num_bytes += num_granules * self._tools.pool.block_bytes // self.link.fit.target_parts
        if self._error:
            return
        try:
            equal = self._compare(flight.positions)
        except TransferFailed as error:
            self.give_up(error.message)
            return
        for position, is_equal in zip(flight.positions, equal, strict=True):
            (self._matched if is_equal else self._mismatched).add(position)

    def _compare(self, positions: list[int]) -> list[bool]:
        """Of each block: whether all that there is of it has the announced digests."""
        if self._tools.digest is None:
            return [True] * len(positions)
        pool, fit = self._tools.pool, self.link.fit
        local = [self.job.local_block_ids[position] for position in positions]
        ours = own_digests(self._tools.digest, pool, local, fit.target_parts)
        announced = announced_digests(self.job.span, pool, fit.source_parts)
        return self._blocks.matching(ours, announced, positions)

    def _judge(self, now: float) -> None:
        """The generations have arrived, after the bytes."""
        found = self._tools.transport.generations_read
        present = {
            position
            for position in self._matched | self._mismatched
            if self._blocks.are_present(position, found)
        }
        self._num_moved += len(self._matched | self._mismatched) - len(present)
        self._verified |= self._matched & present
        suspects = self._mismatched & present
        self._matched, self._mismatched = set(), set()
        if suspects and self._num_readings < MAX_READINGS:
            self._read(suspects)
            return
        self._explain(len(suspects))
        self._end(now)

    def _explain(self, num_wrong: int) -> None:
        of = f"of {self.job.num_blocks} blocks from {self.job.incarnation}"
        if num_wrong:
            self.give_up(f"{num_wrong} {of} do not match their digests, read {MAX_READINGS} times")
        if self._num_moved:
            self.give_up(f"{self._num_moved} {of} were given to another sequence before the read")

    def _end(self, now: float) -> None:
        self._ended = now
        self._move_to(BlockReadState.ENDED)

    def _move_to(self, state: BlockReadState) -> None:
        assert state in _NEXT[self.state], f"a read cannot go from {self.state} to {state}"
        self.state = state

    @property
    def _blocks(self) -> JobBlocks:
        assert self._job_blocks is not None, "the read has begun"
        return self._job_blocks
