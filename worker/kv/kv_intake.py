"""A part of an engine process: blocks of other workers come into the pool.

    Fetch -> may its slots still be written? -> reading thread
          -> Deliver to the engine, Fetched to the server

The question and the start of the read are one step on the engine's thread, and from then on
`has_reads` is true of the request: no read begins in slots that are another's, and none outlives
their reservation.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import structs

from cluster.kv_peer import KvPeer
from engine.contract.commands import Abandon, Cancel, Command, Connect, Deliver, Disconnect, Fetch
from engine.contract.messages import Fetched, Frame
from engine.process.extension import EngineParts
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.reader import Reader

RATE_WEIGHT = 0.2
"""Of the newest read in the moving average of the transfer rate: about five reads of memory."""


class KvIntake:
    """An engine Extension; see there. Owns the reader, its thread and its transport.

    A reader that has died raises from `poll`, which ends the process: its blocks are held for good.
    """

    def __init__(
        self,
        parts: EngineParts,
        reader: Reader,
        kv_transport: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._receiving_blocks = parts.receiving_blocks
        self._reader = reader
        self._kv_transport = kv_transport
        self._said_transport = ""
        self._fetched: list[tuple[float, Fetched]] = []
        self._bytes_per_s = 0.0
        self._clock = clock

    @property
    def peer(self) -> KvPeer | None:
        """The exporter knows."""
        return None

    @property
    def transport(self) -> str:
        """The link that reads take, once there was one."""
        return self._reader.transport_in_use or f"{self._kv_transport}, not connected yet"

    @property
    def busy(self) -> bool:
        """True while reads or answers are under way."""
        return self._reader.busy or bool(self._fetched)

    def has_reads(self, request_id: str) -> bool:
        """True while a read into that request's blocks may be in flight."""
        return self._reader.has_reads(request_id)

    def handle(self, command: Command) -> bool:
        """Takes what is for the intake. A cancelled request's reads are ended early."""
        match command:
            case Connect():
                self._reader.connect(command.incarnation, command.peer)
            case Disconnect():
                self._reader.disconnect(command.incarnation)
            case Fetch():
                self._fetch(command)
            case Abandon():
                self._reader.abandon(command.request_id, command.incarnation)
            case Cancel():
                self._reader.cancel(command.request_id)
                return False
            case _:
                return False
        return True

    def poll(self) -> list[Command]:
        """Verified blocks, for the engine."""
        return [deliver for result in self._reader.poll() for deliver in self._answer(result)]

    def enrich(self, frame: Frame) -> None:
        """Adds the answers, the measured rate and the transport in use."""
        now = self._clock()
        frame.fetched = [
            structs.replace(fetched, frame_delay_ms=(now - polled_at) * 1e3)
            for polled_at, fetched in self._fetched
        ]
        self._fetched.clear()
        if frame.load is not None:
            frame.load = structs.replace(frame.load, kv_bytes_per_s=self._bytes_per_s)
        if self.transport != self._said_transport and not frame.is_empty:
            frame.kv_transport = self._said_transport = self.transport

    def close(self) -> None:
        """Ends every read, the thread and the transport."""
        self._reader.close()

    def _fetch(self, fetch: Fetch) -> None:
        slots, run = self._receiving_blocks(fetch.request_id), fetch.into or fetch.span.run
        if slots is None:
            self._refuse(fetch, "the request does not receive blocks any more")
            return
        if run.end_index > len(slots):
            problem = f"block {run.end_index - 1} was announced, the prompt has {len(slots)}"
            self._refuse(fetch, problem)
            return
        self._reader.submit(
            ReadJob(
                request_id=fetch.request_id,
                incarnation=fetch.incarnation,
                span=fetch.span,
                local_block_ids=slots[run.first_index : run.end_index],
                into=fetch.into,
            )
        )

    def _refuse(self, fetch: Fetch, error: str) -> None:
        first_index = (fetch.into or fetch.span).first_index
        self._tell(Fetched(fetch.request_id, fetch.incarnation, first_index, 0, 0, 0.0, error))

    def _answer(self, result: ReadResult) -> list[Command]:
        """The leading verified blocks count; after the first bad one they are read again."""
        job, first_index = result.job, result.job.first_index
        leading = [run for run in result.verified if run.start == first_index]
        num_verified = len(leading[0]) if leading else 0
        self._tell(
            Fetched(
                job.request_id,
                job.incarnation,
                first_index,
                num_verified,
                result.num_bytes,
                result.duration_ms,
                result.error,
            )
        )
        self._note_rate(result)
        if not num_verified:
            return []
        return [Deliver(job.request_id, first_index, num_verified)]

    def _tell(self, fetched: Fetched) -> None:
        self._fetched.append((self._clock(), fetched))

    def _note_rate(self, result: ReadResult) -> None:
        if result.error or result.duration_ms <= 0:
            return
        rate = result.num_bytes / result.duration_ms * 1e3
        past = self._bytes_per_s or rate
        self._bytes_per_s = past + RATE_WEIGHT * (rate - past)
