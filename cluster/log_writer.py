"""Standard error as a process's log is written to it: by a thread, so that nobody waits for it.

    write -> queue of at most MAX_WAITING_BYTES -> thread -> standard error
                 '- full: the line is lost       '- a full disk, or a bug of ours: what it held is
                                                    lost
                                all of them are told by the next line that gets through

A pipe that nobody reads (a supervisor that was stopped, a collector that hangs) takes 64 KiB and
then blocks whoever writes; here that is a thread that has nothing else to do. It is needed before
any event loop, so that no Background can own it: whoever writes sees that it lives.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
from collections import deque
from collections.abc import Iterator

from cluster.log_batch import LogBatch, told_of

MAX_WAITING_BYTES = 4 * 1024 * 1024
"""About ten thousand lines."""
GATHER_S = 0.025
"""From the first line on others are waited for, and all are written at once: to wake the thread for
every line cost a router 0.1 ms of each request, in which the thread took the interpreter."""
MAX_BATCH_BYTES = 64 * 1024
EXIT_FLUSH_S = 0.5
"""At a process's end, for a reader that is only late."""


class LogWriter:
    """Writes to one descriptor. All calls from any thread; none waits, but `flush`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._num_bytes = 0
        self._num_lost = 0
        self._fault = ""
        """Of the thread, not told yet."""
        self._is_torn = False
        """A line has been written in part, and is no more."""
        self._is_writing = self._is_idle = self._is_hurried = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        """Queues it; lost when too much waits already."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():  # as in a process that forked
                self._start()
            if self._num_bytes + len(data) > MAX_WAITING_BYTES:
                self._num_lost += 1
                return
            self._waiting.append(data)
            self._num_bytes += len(data)
            if self._is_idle:
                self._is_idle = False
                self._changed.notify_all()

    def flush(self, timeout_s: float = EXIT_FLUSH_S) -> bool:
        """Waits until all is written, so long at most; True when it is."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._is_quiet, timeout_s)

    @property
    def _is_quiet(self) -> bool:
        return not self._waiting and not self._is_writing

    def _start(self) -> None:
        if self._thread is None:
            atexit.register(self.flush)
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._emit(self._take())
            except BaseException as error:  # told by the log itself: there is nobody else
                self._fault = repr(error)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _take(self) -> LogBatch:
        with self._changed:
            if not self._waiting:
                self._is_idle = True
                self._changed.wait_for(lambda: bool(self._waiting))
                self._changed.wait_for(lambda: self._is_hurried, GATHER_S)
            self._is_writing, self._is_hurried = True, False
            lines = b"".join(self._batch())
            self._num_bytes -= len(lines)
            num_lost, self._num_lost = self._num_lost, 0
            told = told_of(num_lost=num_lost, fault=self._fault)
            self._fault = ""
        return LogBatch(lines, b"\n" * self._is_torn + told, num_lost)

    def _batch(self) -> Iterator[bytes]:
        """One line, and more as long as they are short."""
        num_bytes = 0
        while self._waiting and (not num_bytes or num_bytes < MAX_BATCH_BYTES):
            line = self._waiting.popleft()
            num_bytes += len(line)
            yield line

    def _emit(self, batch: LogBatch) -> None:
        """What cannot be written, as to a full disk, is lost and counted."""
        num_written = 0
        try:
            while num_written < batch.num_bytes:
                num_written += self._write(batch.piece(num_written))
            self._is_torn = False
        except OSError:
            self._is_torn = batch.is_torn_at(num_written) or (self._is_torn and not num_written)
            with self._changed:
                self._num_lost += batch.num_lost_after(num_written)

    def _write(self, data: bytes) -> int:
        """How much of it was written. Waits for room, also where the descriptor does not block:
        whoever shares it may have set it so."""
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                select.select([], [self._descriptor], [])


STANDARD_ERROR = LogWriter(2)
"""This process's."""
