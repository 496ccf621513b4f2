"""The intake: blocks of other workers, read and verified by a thread of their own.

    engine loop:    submit -> ... poll -> ReadResult, exactly one per job
    reading thread: read bytes -> digests -> generations -> result

The caller is never held up: its calls put things into queues and take them out.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from cluster.kv_peer import KvPeer
from cluster.logs import get_logger
from kvtransfer.block_read import ReadTools
from kvtransfer.local_pool import LocalPool
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.reader_core import ReaderCore
from kvtransfer.transport import Transport
from kvtransfer.verification import Digest

JOB_TIMEOUT_S = 10.0
"""Of a job in the reader. A second is 100 times what 64 blocks take over TCP on one machine."""

SPAN_BYTES = 6 * 1024 * 1024
"""Bytes of one read. 64 blocks of 368,640 bytes took 11.8 ms in spans of 1 block, 6.5 of 4, 4.7 of
16, 5.2 in one (`python -m benchmarks.bench_transfer --spans`)."""

POLL_INTERVAL_S = 100e-6
"""Between two looks at reads in flight. Not a spin: the engine's thread needs the interpreter."""

_log = get_logger("kvtransfer")


class BlockReader:
    """Owns the transport's reading side and the thread. All methods are the caller's, any thread.

    `digest=None` turns verification of bytes off; generations are always checked. `notify` is
    called on the reading thread whenever a result has become ready; it must not wait.
    """

    def __init__(
        self,
        transport: Transport,
        pool: LocalPool,
        digest: Digest | None,
        *,
        timeout_s: float = JOB_TIMEOUT_S,
        span_bytes: int = SPAN_BYTES,
        clock: Callable[[], float] = time.monotonic,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        tools = ReadTools(
            transport=transport,
            blocks=pool.blocks,
            block_bytes=pool.block_bytes,
            digest=digest,
            span_blocks=max(1, span_bytes // pool.block_bytes),
        )
        self._pool = pool
        self._transport = transport
        self._loop = ReaderCore(tools, timeout_s=timeout_s, clock=clock)
        self._notify = notify
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._results: list[ReadResult] = []
        self._unfinished: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._in_use = ""
        self._closing = False
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

    def holds(self, request_id: str) -> bool:
        """True while reads into this request's blocks may be in flight: keep them out of use."""
        return request_id in self._unfinished

    def connect(self, incarnation: str, peer: KvPeer) -> None:
        """Makes the peer readable for jobs that are submitted afterwards.

        Raises PairingMismatch at once when the pools do not fit; any later failure is reported by
        the jobs.
        """
        self._pool.check_peer(peer, peer.transport)
        self._commands.put(partial(self._loop.connect, incarnation, peer))

    def disconnect(self, incarnation: str) -> None:
        """That process is gone: its jobs fail within about a second."""
        self._commands.put(partial(self._loop.disconnect, incarnation))

    def submit(self, job: ReadJob) -> None:
        """Ends in one ReadResult. Jobs of one peer are read side by side."""
        with self._lock:
            self._unfinished[job.request_id] += 1
        self._commands.put(partial(self._loop.add, job))

    def cancel(self, request_id: str) -> bool:
        """Ends the request's jobs early; their results come when nothing is in flight for them.

        Returns whether there are any, so whether the request's blocks are still held.
        """
        self._commands.put(partial(self._loop.cancel, request_id))
        return self.holds(request_id)

    def poll(self) -> list[ReadResult]:
        """Results since the last call."""
        with self._lock:
            results, self._results = self._results, []
        return results

    def close(self) -> None:
        """Ends every job, the transport and the thread, and waits for that. Idempotent."""
        self._commands.put(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        self._closing = True

    def _run(self) -> None:
        moved = True
        self._execute(self._transport.start_reading)
        while not self._closing:
            self._take_commands(wait=not moved or not self._loop.num_reads)
            results, moved = self._loop.turn()
            self._publish(results)
        self._publish(self._loop.close())

    def _take_commands(self, *, wait: bool) -> None:
        """Waits for a command when idle, and for the next look when reads are in flight."""
        timeout = POLL_INTERVAL_S if self._loop.num_reads else None
        try:
            if wait:
                self._execute(self._commands.get(timeout=timeout))
            while True:
                self._execute(self._commands.get_nowait())
        except queue.Empty:
            return

    def _execute(self, command: Callable[[], None]) -> None:
        """The thread outlives whatever a command may do."""
        try:
            command()
        except Exception:
            _log.exception("a command of the KV intake failed")

    def _publish(self, results: list[ReadResult]) -> None:
        if not results:
            return
        self._in_use = self._transport.in_use
        with self._lock:
            self._unfinished -= Counter(result.job.request_id for result in results)
            self._results += results
        self._notify()
