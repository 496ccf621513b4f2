"""Both ways of the blocks of a rank that is not the conductor; see kv_port.py."""

from __future__ import annotations

from collections.abc import Callable

from cluster.logs import get_logger
from kvtransfer.rank_reader import RankReader
from kvtransfer.rank_words import (
    ConnectPeer,
    DisconnectPeer,
    ReadBlocks,
    ReadEnded,
    pack,
    unpack_word,
)
from worker.kv.export_group import RankExporter
from worker.kv.port_words import EXPORT

_log = get_logger("worker.kv")


class RankPort:
    """A RankExtension, see there. Owns both parts."""

    def __init__(
        self,
        exporter: RankExporter,
        make_reader: Callable[[], RankReader],
        *,
        rank: int,
        reads_by_trade: bool,
    ) -> None:
        """The reader is made when a KvPort makes its intake; where that fails, reads of this rank
        fail until the next source is connected."""
        self._rank = rank
        self._sources: dict[str, bytes] = {}
        """The words that connect them, while there is no reader."""
        self._problem = "no source was connected"
        """Why there is none."""
        self._refused: list[bytes] = []
        self._exporter = exporter
        self._make_reader = make_reader
        self._reader = make_reader() if reads_by_trade else None
        self.greeting = exporter.greeting
        """Where this rank's part can be read."""

    @property
    def busy(self) -> bool:
        """True while something is read, or is to be said of it."""
        return bool(self._refused) or (self._reader is not None and self._reader.busy)

    def handle(self, body: bytes) -> None:
        """The conductor's word to one of the two. Raises RankLost."""
        letter, word = body[:1], body[1:]
        if letter == EXPORT:
            self._exporter.handle(word)
            return
        if self._reader is None:
            self._handle_without(word)
        else:
            self._reader.handle(word)

    def poll(self) -> list[bytes]:
        """What has become of reads. Raises when nothing can be read any more."""
        refused, self._refused = self._refused, []
        return refused if self._reader is None else [*refused, *self._reader.poll()]

    def close(self) -> None:
        """Ends every read and the transport."""
        if self._reader is None:
            self._exporter.close()
        else:
            self._reader.close()

    def _handle_without(self, word: bytes) -> None:
        match unpack_word(word):
            case ConnectPeer(incarnation, _):
                self._sources[incarnation] = word
                self._begin_reader()
            case DisconnectPeer(incarnation):
                self._sources.pop(incarnation, None)
            case ReadBlocks() as wanted if self._rank in wanted.ranks:
                self._refused.append(pack(ReadEnded(wanted.number, [], 0, 0.0, self._problem)))
            case _:
                pass  # nothing is read here

    def _begin_reader(self) -> None:
        """What it raised would end the rank, and the group with it."""
        try:
            self._reader = self._make_reader()
        except Exception as error:
            self._problem = f"it cannot read blocks: {error!r}"
            _log.exception("blocks of other workers cannot be read here; the next source tries it")
            return
        for source in self._sources.values():
            self._reader.handle(source)
        self._sources.clear()
