"""One process at a time fetches a model; the others wait and find it there."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.errors import SourceUnreachable
from cluster.models.cache.progress import Progress

MAX_WAIT_S = 3600.0
_POLL_S = 0.1


@contextmanager
def cache_lock(path: Path, progress: Progress, *, max_wait_s: float = MAX_WAIT_S) -> Iterator[None]:
    """Held for the block; the kernel frees it when the process dies.

    Reports phase "wait" (milliseconds) while another process holds it. Raises SourceUnreachable
    after `max_wait_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _acquire(handle, path, progress, max_wait_s)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, path: Path, progress: Progress, max_wait_s: float) -> None:
    start = time.monotonic()
    while not _try(handle):
        waited_s = time.monotonic() - start
        if waited_s > max_wait_s:
            raise SourceUnreachable(
                f"another process has been fetching this model for {waited_s:.0f} s (limit "
                f"{max_wait_s:.0f} s); end it, or pass a local .gguf file or folder. Lock: {path}"
            )
        progress("wait", int(waited_s * 1000), None)
        time.sleep(_POLL_S)


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
