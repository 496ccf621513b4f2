"""The prefill side: what a reader needs to know about final blocks, computed beside the engine.

    engine loop:   submit(ExportJob) -> ... poll -> Export, one per job, in order
    export thread: digests

The generations are taken at submit: when a slot is given away before the digests are computed, its
generation has moved on, and a reader refuses the block.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cluster.logs import get_logger
from kvtransfer.local_pool import LocalPool
from kvtransfer.verification import Digest, digest_bytes

_log = get_logger("kvtransfer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """Blocks that will not change while they are pinned."""

    request_id: str
    first_index: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An announcement in the making. Parallel to the job's `block_ids`."""

    job: ExportJob
    generations: list[int]
    digests: bytes
    """Little-endian uint64 [num_blocks, num_layers, 2, num_kv_heads]; empty with an error."""
    error: str = ""


class BlockExporter:
    """Owns one thread. `notify` is called there when an export is ready; it must not wait.

    The work that wrote the blocks must have been submitted to the pool's default CUDA stream.
    """

    def __init__(
        self, pool: LocalPool, digest: Digest, *, notify: Callable[[], None] = lambda: None
    ) -> None:
        self._pool = pool
        self._digest = digest
        self._notify = notify
        self._jobs: queue.SimpleQueue[tuple[ExportJob, list[int]] | None] = queue.SimpleQueue()
        self._exports: queue.SimpleQueue[Export] = queue.SimpleQueue()
        self._num_submitted = 0
        self._num_polled = 0
        self._thread = threading.Thread(target=self._run, name="kv-export", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """True while an export has not been polled."""
        return self._num_polled < self._num_submitted

    def submit(self, job: ExportJob) -> None:
        """Never waits. From the thread that bumps generations."""
        generations: list[int] = self._pool.generations[list(job.block_ids)].tolist()
        self._num_submitted += 1
        self._jobs.put((job, generations))

    def poll(self) -> list[Export]:
        """Exports since the last call, in the order of their jobs."""
        exports: list[Export] = []
        while not self._exports.empty():
            exports.append(self._exports.get())
        self._num_polled += len(exports)
        return exports

    def close(self) -> None:
        """Finishes what was submitted and ends the thread. Idempotent."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            self._exports.put(self._export(*work))
            self._notify()

    def _export(self, job: ExportJob, generations: list[int]) -> Export:
        try:
            digests = digest_bytes(self._digest, self._pool.blocks, job.block_ids)
        except (RuntimeError, ValueError, IndexError) as error:
            _log.exception("blocks cannot be digested", request_id=job.request_id)
            return Export(job=job, generations=generations, digests=b"", error=str(error))
        return Export(job=job, generations=generations, digests=digests)
