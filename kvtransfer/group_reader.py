"""The reader of a group: every rank reads its own heads of the same blocks into the same slots.

    submit -> the conductor's own reader, and a word to the other ranks
    each rank: bytes, digests, generations -> ReadEnded
    when all have answered: one ReadResult. A block is verified when every rank says so.

Until then the request has reads. A rank that dies answers nothing: the group ends with it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cluster.block_span import BlockRun
from cluster.kv_peer import KvPeer
from kvtransfer.rank_words import (
    AbandonReads,
    CancelReads,
    ConnectPeer,
    DisconnectPeer,
    ReadBlocks,
    ReadEnded,
    ReadersLine,
    ReaderWord,
    pack,
    unpack_ended,
)
from kvtransfer.read_job import ReadJob, ReadResult, runs_of
from kvtransfer.reader import Reader

CONDUCTOR = 0


@dataclass(slots=True)
class _JointJob:
    job: ReadJob
    endings: dict[int, ReadEnded] = field(default_factory=dict)
    """By rank."""


class GroupReader:
    """A Reader, see there; the conductor's. Owns its own rank's reader."""

    def __init__(self, own: Reader, line: ReadersLine, world_size: int) -> None:
        self._own = own
        self._line, self._world_size = line, world_size
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
        self._own.disconnect(incarnation)
        self._tell(DisconnectPeer(incarnation))

    def submit(self, job: ReadJob) -> None:
        """See Jobs."""
        self._num_jobs += 1
        self._jobs[self._num_jobs] = _JointJob(job)
        self._unfinished[job.request_id] += 1
        self._own.submit(job)
        self._tell(
            ReadBlocks(
                number=self._num_jobs,
                request_id=job.request_id,
                incarnation=job.incarnation,
                span=job.span,
                local_block_ids=list(job.local_block_ids),
                into=job.into,
            )
        )

    def cancel(self, request_id: str) -> bool:
        """See Jobs."""
        self._own.cancel(request_id)
        if self.has_reads(request_id):
            self._tell(CancelReads(request_id))
        return self.has_reads(request_id)

    def abandon(self, request_id: str, incarnation: str) -> None:
        """See Jobs."""
        self._own.abandon(request_id, incarnation)
        self._tell(AbandonReads(request_id, incarnation))

    def poll(self) -> list[ReadResult]:
        """See Reader."""
        for result in self._own.poll():
            number = next(at for at, joint in self._jobs.items() if joint.job is result.job)
            self._note(CONDUCTOR, ended(number, result))
        for rank, word in self._line.hear():
            self._note(rank, unpack_ended(word))
        whole = [
            number for number, joint in self._jobs.items() if len(joint.endings) == self._world_size
        ]
        return [self._finish(number) for number in whole]

    def close(self) -> None:
        """Ends the conductor's jobs and transport; the other ranks end theirs as they stop."""
        self._own.close()

    def _tell(self, word: ReaderWord) -> None:
        self._line.tell(pack(word))

    def _note(self, rank: int, ending: ReadEnded) -> None:
        self._jobs[ending.number].endings[rank] = ending

    def _finish(self, number: int) -> ReadResult:
        joint = self._jobs.pop(number)
        self._unfinished -= Counter((joint.job.request_id,))
        endings = joint.endings.values()
        verified = set.intersection(*(_indices(ending) for ending in endings))
        return ReadResult(
            job=joint.job,
            verified=runs_of(0, verified),
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
    """The first rank's that has one."""
    wrong = sorted((rank, ending.error) for rank, ending in endings.items() if ending.error)
    return f"rank {wrong[0][0]}: {wrong[0][1]}" if wrong else ""
