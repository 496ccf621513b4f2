"""Both ways of a worker's blocks in one engine process: out to readers, and in from sources.

Every worker has both, over one pool and one transport: what a prefill worker computes is read by
decode workers, and what any worker has cached by whoever takes it over.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from engine.contract.commands import Abandon, Command, Connect, Disconnect, Fetch
from engine.contract.messages import Fetched, Frame
from worker.kv.kv_exporter import KvExporter
from worker.kv.kv_intake import KvIntake

_log = get_logger("worker.kv")


class KvPort:
    """An engine Extension; see there. Owns both parts.

    The intake is made at once where reading is the worker's trade, and else when the first source
    is connected: its thread and its registered memory take half a second of a start. Where it
    cannot be made then, reads fail, and the next source to be connected tries again: whoever serves
    others from this pool goes on.
    """

    def __init__(
        self, exporter: KvExporter, make_intake: Callable[[], KvIntake], *, reads_by_trade: bool
    ) -> None:
        self._exporter = exporter
        self._make_intake = make_intake
        self._reads_by_trade = reads_by_trade
        self._intake = make_intake() if reads_by_trade else None
        self._sources: dict[str, Connect] = {}
        """By incarnation, while there is no intake that could be told of them."""
        self._problem = "no source was connected"
        """Why there is none."""
        self._refused: list[Fetched] = []

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
        return bool(self._refused) or (self._intake is not None and self._intake.busy)

    def has_reads(self, request_id: str) -> bool:
        """True while a read into that request's blocks may be in flight."""
        return self._intake is not None and self._intake.has_reads(request_id)

    def handle(self, command: Command) -> bool:
        """Takes what is for the intake."""
        if self._intake is not None:
            return self._intake.handle(command)
        match command:
            case Connect():
                self._sources[command.incarnation] = command
                self._begin_intake()
            case Disconnect():
                self._sources.pop(command.incarnation, None)
            case Fetch():
                self._refuse(command)
            case Abandon():
                pass  # nothing is read
            case _:
                return False
        return True

    def poll(self) -> list[Command]:
        """Verified blocks, for the engine."""
        return [] if self._intake is None else self._intake.poll()

    def enrich(self, frame: Frame) -> None:
        """Announcements get generations and digests; answers to reads are added."""
        self._exporter.enrich(frame)
        if self._intake is not None:
            self._intake.enrich(frame)
        frame.fetched = [*self._refused, *frame.fetched]
        self._refused.clear()
        if not self._reads_by_trade:
            frame.kv_transport = ""  # it has been said, and does not change

    def close(self) -> None:
        """Ends every read and the transport, which is closed by whoever reads."""
        if self._intake is None:
            self._exporter.close()
        else:
            self._intake.close()

    def _begin_intake(self) -> None:
        """On the engine's thread: what it raised would end the engine."""
        try:
            self._intake = self._make_intake()
        except Exception as error:
            self._problem = f"this worker cannot read blocks: {error!r}"
            _log.exception("blocks of other workers cannot be read here; the next source tries it")
            return
        for source in self._sources.values():
            self._intake.handle(source)
        self._sources.clear()

    def _refuse(self, fetch: Fetch) -> None:
        first = (fetch.into or fetch.span).first_index
        self._refused.append(
            Fetched(fetch.request_id, fetch.incarnation, first, 0, 0, 0.0, self._problem)
        )
