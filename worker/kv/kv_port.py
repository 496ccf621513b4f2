"""Both ways of a worker's blocks in one engine process: out to readers, and in from sources.

Every worker has both, over one pool and one transport: what a prefill worker computes is read by
decode workers, and what any worker has cached by whoever takes it over.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.kv_peer import KvPeer
from engine.contract.commands import Command, Connect
from engine.contract.messages import Frame
from worker.kv.kv_exporter import KvExporter
from worker.kv.kv_intake import KvIntake


class KvPort:
    """An engine Extension; see there. Owns both parts.

    The intake is made at once where reading is the worker's trade, and else when the first source
    is connected: its thread and its registered memory take half a second of a start.
    """

    def __init__(
        self, exporter: KvExporter, make_intake: Callable[[], KvIntake], *, reads_by_trade: bool
    ) -> None:
        self._exporter = exporter
        self._make_intake = make_intake
        self._reads_by_trade = reads_by_trade
        self._intake = make_intake() if reads_by_trade else None

    @property
    def peer(self) -> KvPeer | None:
        """Where this pool can be read."""
        return self._exporter.peer

    @property
    def transport(self) -> str:
        """As the worker's trade has it."""
        if self._reads_by_trade and self._intake is not None:
            return self._intake.transport
        return self._exporter.transport

    @property
    def busy(self) -> bool:
        """True while reads or their answers are under way."""
        return self._intake is not None and self._intake.busy

    def has_reads(self, request_id: str) -> bool:
        """True while a read into that request's blocks may be in flight."""
        return self._intake is not None and self._intake.has_reads(request_id)

    def handle(self, command: Command) -> bool:
        """Takes what is for the intake."""
        if self._intake is None and isinstance(command, Connect):
            self._intake = self._make_intake()
        return self._intake is not None and self._intake.handle(command)

    def poll(self) -> list[Command]:
        """Verified blocks, for the engine."""
        return [] if self._intake is None else self._intake.poll()

    def enrich(self, frame: Frame) -> None:
        """Announcements get generations and digests; answers to reads are added."""
        self._exporter.enrich(frame)
        if self._intake is not None:
            self._intake.enrich(frame)
        if not self._reads_by_trade:
            frame.kv_transport = ""  # it has been said, and does not change

    def close(self) -> None:
        """Ends every read and the transport, which is closed by whoever reads."""
        if self._intake is None:
            self._exporter.close()
        else:
            self._intake.close()
