"""One process at a time fetches a model; the others wait and find it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cluster.errors import SourceUnreachable
from cluster.models.files.progress import ByteProgress

MAX_WAIT_S = 3600.0
_POLL_S = 0.1


@contextmanager
def cache_lock(
    path: Path, progress: ByteProgress, *, max_wait_s: float = MAX_WAIT_S
) -> Iterator[None]:
    """Held for the block; the kernel frees it when the process dies.

    Reports phase "wait" (milliseconds) while another process holds it. Raises SourceUnreachable
    after `max_wait_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=max_wait_s, poll_interval=_POLL_S)
    try:
        lock.acquire(cancel_check=_telling_of_the_wait(progress))
    except Timeout as timeout:
        raise SourceUnreachable(
            f"another process has been fetching this model for more than {max_wait_s:.0f} s; "
            f"end it, or pass a local .gguf file or folder as the model. Lock: {path}"
        ) from timeout
    try:
        yield
    finally:
        lock.release()


def _telling_of_the_wait(progress: ByteProgress) -> Callable[[], bool]:
    """Asked at every poll whether to give up: says how long it has been, and no."""
    start = time.monotonic()

    def go_on() -> bool:
        progress("wait", int((time.monotonic() - start) * 1000), None)
        return False

    return go_on
