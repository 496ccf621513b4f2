"""The reader of a group: every rank reads its own heads of the same blocks into the same slots;
where ranks share blocks, the home of a job's blocks reads all of it, and its word is enough.

    submit -> the conductor's own reader, and a word to the other ranks
    each rank that is asked: bytes, digests, generations -> ReadEnded
    when all of them have answered: one ReadResult. A block is verified when every one says so; once
    none can be, the others need not read on.

Until then the request has reads. A rank that is slow is waited for: the request's own deadline ends
its reads. A rank that dies answers nothing: the group ends with it. So does one that lives, and
answers nothing for LIMIT_S after it was told to end: what it reads has a limit of its own, far
below, and the blocks cannot be had back from it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cluster.block_homes import BlockHomes
from cluster.block_span import BlockRun
from cluster.deadline import Clock
from cluster.errors import RankLost
from cluster.kv_peer import KvPeer
from cluster.process.own_lateness import SeenTime
from kvtransfer.rank_words import (
    AbandonReads,
    CancelReads,
    ConnectPeer,
    DisconnectPeer,
    DropRead,
    ReadBlocks,
    ReadEnded,
    ReaderWord,
    pack,
    unpack_ended,
)
from kvtransfer.read_job import ReadJob, ReadResult, runs_of
from kvtransfer.reader import Reader
from ranks.launch import CONDUCTOR
from ranks.line import RankLine

LIMIT_S = 60.0
"""Between the word to end and the last rank's answer: several times a reader's patience."""


@dataclass(slots=True)
class _JointJob:
    job: ReadJob
    local: ReadJob
    """The same in slots of whoever reads it."""
    ranks: range
    """Who does."""
    endings: dict[int, ReadEnded] = field(default_factory=dict)
    """By rank, in the order in which they came."""
    patience: SeenTime | None = None
    """Since the ranks were told to end it; None: they may read on."""

    @property
    def is_in_vain(self) -> bool:
        """No block can be verified at all ranks any more."""
        return bool(self.endings) and not self.verified

    @property
    def is_whole(self) -> bool:
        """Everybody has let go of it."""
        return len(self.endings) == len(self.ranks)

    @property
    def verified(self) -> set[int]:
        """At all ranks that have answered."""
        return set.intersection(*(_indices(ending) for ending in self.endings.values()))


class GroupReader:
    """A Reader, see there; the conductor's. Owns its own rank's reader."""

    def __init__(
        self,
        own: Reader,
        line: RankLine,
        world_size: int,
        *,
        homes: BlockHomes,
        clock: Clock = time.monotonic,
    ) -> None:
        """`homes`: of the local blocks."""
        self._own, self._clock = own, clock
        self._line, self._world_size, self._homes = line, world_size, homes
        self._jobs: dict[int, _JointJob] = {}
        self._unfinished: Counter[str] = Counter()
        self._num_jobs = 0

    @property
    def transport_in_use(self) -> str:
        """The conductor's own, in words; empty before the first connection."""
        return self._own.transport_in_use

    @property
    def busy(self) -> bool:
        """True while a job is unfinished."""
        return bool(self._jobs)

    def has_reads(self, request_id: str) -> bool:
        """True until every rank has let go of this request's blocks."""
        return request_id in self._unfinished

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """See Sources."""
        self._own.connect(incarnation, peer)
        self._tell(ConnectPeer(incarnation, peer))

    def disconnect(self, incarnation: str) -> None:
        """See Sources."""
        self._end(joint for joint in self._jobs.values() if joint.job.incarnation == incarnation)
        self._own.disconnect(incarnation)
        self._tell(DisconnectPeer(incarnation))

    def submit(self, job: ReadJob) -> None:
        """See Jobs."""
        self._num_jobs += 1
        slots = [self._homes.local(block) for block in job.local_block_ids]
        joint = _JointJob(job, replace(job, local_block_ids=slots), self._readers(job))
        self._jobs[self._num_jobs] = joint
        self._unfinished[job.request_id] += 1
        if CONDUCTOR in joint.ranks:
            self._own.submit(joint.local)
        self._tell(
            ReadBlocks(
                number=self._num_jobs,
                ranks=list(joint.ranks),
                request_id=job.request_id,
                incarnation=job.incarnation,
                span=job.span,
                local_block_ids=slots,
                into=job.into,
            )
        )

    def cancel(self, request_id: str) -> bool:
        """See Jobs."""
        self._end(joint for joint in self._jobs.values() if joint.job.request_id == request_id)
        self._own.cancel(request_id)
        if self.has_reads(request_id):
            self._tell(CancelReads(request_id))
        return self.has_reads(request_id)

    def abandon(self, request_id: str, incarnation: str) -> None:
        """See Jobs."""
        told = (request_id, incarnation)
        self._end(
            joint
            for joint in self._jobs.values()
            if (joint.job.request_id, joint.job.incarnation) == told
        )
        self._own.abandon(request_id, incarnation)
        self._tell(AbandonReads(request_id, incarnation))

    def drop(self, job: ReadJob) -> None:
        """See Jobs."""
        for number, joint in self._jobs.items():
            if joint.job is job:
                self._drop(number, joint)

    def poll(self) -> list[ReadResult]:
        """See Reader. Raises RankLost for a rank that does not answer."""
        for result in self._own.poll():
            number = next(at for at, joint in self._jobs.items() if joint.local is result.job)
            self._note(CONDUCTOR, ended(number, result))
        if self._jobs:  # else there is nothing to hear, and looking takes 0.05 ms of a step
            for rank, word in self._line.hear():
                self._note(rank, unpack_ended(word))
        whole = [number for number, joint in self._jobs.items() if joint.is_whole]
        results = [self._finish(number) for number in whole]
        for joint in self._jobs.values():
            self._check(joint)
        return results

    def close(self) -> None:
        """Ends the conductor's jobs and transport; the other ranks end theirs as they stop."""
        self._own.close()

    def _readers(self, job: ReadJob) -> range:
        """Every rank, or the home of the job's blocks."""
        if not self._homes.are_several:
            return range(self._world_size)
        homes = {self._homes.home_of(block) for block in job.local_block_ids} or {CONDUCTOR}
        assert len(homes) == 1, f"blocks of ranks {sorted(homes)} are one sequence's"
        (home,) = homes
        return range(home, home + 1)

    def _tell(self, word: ReaderWord) -> None:
        self._line.tell(pack(word))

    def _note(self, rank: int, ending: ReadEnded) -> None:
        joint = self._jobs[ending.number]
        joint.endings[rank] = ending
        if joint.is_in_vain and joint.patience is None and not joint.is_whole:
            self._drop(ending.number, joint)

    def _drop(self, number: int, joint: _JointJob) -> None:
        self._end((joint,))
        self._own.drop(joint.local)
        self._tell(DropRead(number))

    def _end(self, told: Iterable[_JointJob]) -> None:
        for joint in told:
            joint.patience = joint.patience or SeenTime(self._clock)

    def _check(self, joint: _JointJob) -> None:
        if joint.patience is not None and joint.patience.look() > LIMIT_S:
            silent = tuple(at for at in joint.ranks if at not in joint.endings)
            raise RankLost(
                f"rank {silent[0]} has not let go of blocks that it was to read, {LIMIT_S:g} s "
                "after all ranks were told to; the group is started anew",
                ranks=silent,
            )

    def _finish(self, number: int) -> ReadResult:
        joint = self._jobs.pop(number)
        self._unfinished -= Counter((joint.job.request_id,))
        endings = joint.endings.values()
        return ReadResult(
            job=joint.job,
            verified=runs_of(0, joint.verified),
            num_bytes=sum(ending.num_bytes for ending in endings),
            duration_ms=max(ending.duration_ms for ending in endings),
            error=_error(joint.endings),
        )


def ended(number: int, result: ReadResult) -> ReadEnded:
    """A rank's result, as it travels."""
    return ReadEnded(
        number=number,
        verified=[BlockRun(run.start, len(run)) for run in result.verified],
        num_bytes=result.num_bytes,
        duration_ms=result.duration_ms,
        error=result.error,
    )


def _indices(ending: ReadEnded) -> set[int]:
    return {index for run in ending.verified for index in range(run.first_index, run.end_index)}


def _error(endings: dict[int, ReadEnded]) -> str:
    """Of the first rank that had one: the others' may only follow from it."""
    wrong = [(rank, ending.error) for rank, ending in endings.items() if ending.error]
    return f"rank {wrong[0][0]}: {wrong[0][1]}" if wrong else ""
