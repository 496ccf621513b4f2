"""Both ways of the blocks of a rank that is not the conductor; see kv_port.py."""

from __future__ import annotations

from collections.abc import Callable

from kvtransfer.rank_reader import RankReader
from worker.kv.export_group import RankExporter
from worker.kv.port_words import EXPORT


class RankPort:
    """A RankExtension, see there. Owns both parts."""

    def __init__(
        self,
        exporter: RankExporter,
        make_reader: Callable[[], RankReader],
        *,
        reads_by_trade: bool,
    ) -> None:
        """The reader is made when a KvPort makes its intake."""
        self._exporter = exporter
        self._make_reader = make_reader
        self._reader = make_reader() if reads_by_trade else None
        self.greeting = exporter.greeting
        """Where this rank's part can be read."""

    @property
    def busy(self) -> bool:
        """True while something is read."""
        return self._reader is not None and self._reader.busy

    def handle(self, body: bytes) -> None:
        """The conductor's word to one of the two. Raises RankLost."""
        letter, word = body[:1], body[1:]
        if letter == EXPORT:
            self._exporter.handle(word)
            return
        if self._reader is None:
            self._reader = self._make_reader()
        self._reader.handle(word)

    def poll(self) -> list[bytes]:
        """What has become of reads. Raises when nothing can be read any more."""
        return [] if self._reader is None else self._reader.poll()

    def close(self) -> None:
        """Ends every read and the transport."""
        if self._reader is None:
            self._exporter.close()
        else:
            self._reader.close()
