"""What another rank than the conductor does for a reading group: it reads what it is told."""

from __future__ import annotations

from cluster.logs import get_logger
from kvtransfer.group_reader import ended
from kvtransfer.rank_words import (
    AbandonReads,
    CancelReads,
    ConnectPeer,
    DisconnectPeer,
    DropRead,
    ReadBlocks,
    pack,
    unpack_word,
)
from kvtransfer.read_job import ReadJob
from kvtransfer.reader import Reader

_log = get_logger("kvtransfer")


class RankReader:
    """A RankExtension, see there. Owns the reader: its pool is this rank's part, its generations
    are read from the peer as the conductor reads them. What is for others is not begun."""

    greeting = b""
    """This pool is not exported."""

    def __init__(self, reader: Reader, rank: int) -> None:
        self._reader, self._rank = reader, rank
        self._numbers: dict[int, tuple[int, ReadJob]] = {}
        """By the identity of the job, which the reader gives back: its number, and the job."""
        self._said_transport = ""

    @property
    def busy(self) -> bool:
        """True while a job is unfinished."""
        return bool(self._numbers)

    def handle(self, body: bytes) -> None:
        """Begins what the conductor says; never waits."""
        match unpack_word(body):
            case ConnectPeer(incarnation, peer):
                self._reader.connect(incarnation, peer)
            case DisconnectPeer(incarnation):
                self._reader.disconnect(incarnation)
            case ReadBlocks() as wanted if self._rank in wanted.ranks:
                self._submit(wanted)
            case CancelReads(request_id):
                self._reader.cancel(request_id)
            case AbandonReads(request_id, incarnation):
                self._reader.abandon(request_id, incarnation)
            case DropRead(number):
                self._drop(number)

    def poll(self) -> list[bytes]:
        """Words for the conductor. Raises when nothing can be read any more: the rank ends."""
        words = []
        for result in self._reader.poll():
            number, _ = self._numbers.pop(id(result.job))
            words.append(pack(ended(number, result)))
        self._note_transport()
        return words

    def close(self) -> None:
        """Ends every job and the transport."""
        self._reader.close()

    def _submit(self, wanted: ReadBlocks) -> None:
        job = ReadJob(
            request_id=wanted.request_id,
            incarnation=wanted.incarnation,
            span=wanted.span,
            local_block_ids=wanted.local_block_ids,
            into=wanted.into,
        )
        self._numbers[id(job)] = (wanted.number, job)
        self._reader.submit(job)

    def _drop(self, number: int) -> None:
        """It may have ended here meanwhile."""
        for known, job in self._numbers.values():
            if known == number:
                self._reader.drop(job)

    def _note_transport(self) -> None:
        in_use = self._reader.transport_in_use
        if in_use != self._said_transport:
            self._said_transport = in_use
            _log.info("this rank reads KV blocks", transport=in_use)
