"""The intake: blocks of other workers, read and verified by a thread of their own.

    engine loop:    submit -> ... poll -> ReadResult, exactly one per job
    reading thread: commands -> turn of the ReaderCore -> results

The caller is never held up: its calls put things into queues and take them out. A thread that ends
or stands still is found by the next poll, which raises.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from cluster.errors import ConfigError, SplitserveError
from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from cluster.process.own_lateness import SeenTime
from kvtransfer.block_read import ReadTools
from kvtransfer.local_pool import LocalPool
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.reader_core import ReaderCore
from kvtransfer.transport import Transport
from kvtransfer.verification import Digest

PATIENCE_S = 10.0
"""With a peer whose reads do not land. A second is 100 times what 64 blocks take over TCP on one
machine."""

SPAN_BYTES = 6 * 1024 * 1024
"""Bytes of one read. 64 blocks of 368,640 bytes took 11.8 ms in spans of 1 block, 6.5 of 4, 4.7 of
16, 5.2 in one (`python -m benchmarks.bench_transfer --spans`)."""

POLL_INTERVAL_S = 100e-6
"""Between two looks at reads in flight. Not a spin: the engine's thread needs the interpreter."""

STANDSTILL_S = 15.0
"""Of the reading thread with jobs to do: more than the library takes to start or end an agent."""

CLOSE_TIMEOUT_S = 10.0

_log = get_logger("kvtransfer")


class ReaderDied(RuntimeError):
    """The reading thread has ended or stands still: nothing is read any more, what it holds stays
    held. For whoever polls: the process has to end."""


class BlockReader:
    """A Reader, see there; owns the transport's reading side and the thread.

    `digest=None` turns verification of bytes off, which is refused for memory of a GPU: reading
    the bytes again is what proves that they have arrived there. `notify` is called on the reading
    thread whenever a result has become ready, and at its end; it must not wait.
    """

    def __init__(
        self,
        transport: Transport,
        pool: LocalPool,
        digest: Digest | None,
        *,
        patience_s: float = PATIENCE_S,
        span_bytes: int = SPAN_BYTES,
        clock: Callable[[], float] = time.monotonic,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        if digest is None and pool.memory == "VRAM":
            raise ConfigError(
                "blocks in the memory of a GPU cannot be read without their digests: nothing else "
                "shows that the bytes have arrived; pass a digest"
            )
        tools = ReadTools(
            transport=transport,
            pool=pool,
            digest=digest,
            span_blocks=max(1, span_bytes // pool.block_bytes),
        )
        self._transport = transport
        self._core = ReaderCore(tools, patience_s=patience_s, clock=clock)
        self._notify = notify
        self._commands: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._results: list[ReadResult] = []
        self._unfinished: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._in_use = ""
        self._closing = False
        self._death: BaseException | None = None
        self._num_turns = self._seen_turns = 0
        self._patience = SeenTime(clock)
        self._thread = threading.Thread(target=self._run, name="kv-intake", daemon=True)
        self._thread.start()

    @property
    def transport_in_use(self) -> str:
        """In words; empty before the first connection."""
        return self._in_use

    @property
    def busy(self) -> bool:
        """True while a job is unfinished or a result has not been polled."""
        with self._lock:
            return bool(self._unfinished) or bool(self._results)

    def has_reads(self, request_id: str) -> bool:
        """True while reads into this request's blocks may be in flight: keep them out of use."""
        return request_id in self._unfinished

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """See Sources."""
        self._commands.put(partial(self._core.connect, incarnation, peer))

    def disconnect(self, incarnation: str) -> None:
        """See Sources."""
        self._commands.put(partial(self._core.disconnect, incarnation))

    def submit(self, job: ReadJob) -> None:
        """See Jobs."""
        with self._lock:
            self._unfinished[job.request_id] += 1
        self._commands.put(partial(self._core.submit, job))

    def cancel(self, request_id: str) -> bool:
        """See Jobs."""
        self._commands.put(partial(self._core.cancel, request_id))
        return self.has_reads(request_id)

    def abandon(self, request_id: str, incarnation: str) -> None:
        """See Jobs."""
        self._commands.put(partial(self._core.abandon, request_id, incarnation))

    def drop(self, job: ReadJob) -> None:
        """See Jobs."""
        self._commands.put(partial(self._core.drop, job))

    def poll(self) -> list[ReadResult]:
        """Results since the last call. Raises ReaderDied, also when no job was ever submitted."""
        self._check_thread()
        with self._lock:
            results, self._results = self._results, []
        return results

    def close(self) -> None:
        """Ends every job, the transport and the thread, and waits for that, but not for ever."""
        self._commands.put(self._stop)
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            _log.error("the thread that reads KV blocks does not end", waited_s=CLOSE_TIMEOUT_S)

    def _check_thread(self) -> None:
        if self._death is not None:
            raise ReaderDied(
                f"the thread that reads KV blocks has failed: {self._death!r}"
            ) from self._death
        if not self._unfinished or self._num_turns != self._seen_turns:
            self._seen_turns = self._num_turns
            self._patience.renew()
        elif (waited_s := self._patience.look()) >= STANDSTILL_S:
            raise ReaderDied(
                f"the thread that reads KV blocks has stood still for {waited_s:.0f} s"
            )

    def _stop(self) -> None:
        self._closing = True

    def _run(self) -> None:
        try:
            self._read_until_closed()
        except BaseException as error:  # told by the next poll, which ends the process
            _log.critical(
                "the thread that reads KV blocks has failed; the engine ends", exc_info=error
            )
            self._death = error
            self._notify()

    def _read_until_closed(self) -> None:
        moved = True
        self._start()
        while not self._closing:
            self._take_commands(wait=not moved or not self._core.busy)
            results, moved = self._core.turn()
            self._num_turns += 1
            self._publish(results)
        self._publish(self._core.close())

    def _start(self) -> None:
        """What cannot be made now is tried again at the first connection."""
        try:
            self._transport.start_reading()
        except SplitserveError as error:
            _log.warning(
                "reading KV blocks cannot start yet; trying again at the next connection",
                error=error.message,
            )

    def _take_commands(self, *, wait: bool) -> None:
        """Waits for a command when idle, and for the next look when reads are in flight."""
        timeout = POLL_INTERVAL_S if self._core.busy else None
        try:
            if wait:
                self._commands.get(timeout=timeout)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _publish(self, results: list[ReadResult]) -> None:
        if not results:
            return
        self._in_use = self._core.transport_in_use
        with self._lock:
            self._unfinished -= Counter(result.job.request_id for result in results)
            self._results += results
        self._notify()
