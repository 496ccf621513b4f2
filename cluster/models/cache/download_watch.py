"""Reports a download's progress by watching its folder grow: works for any downloader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.models.cache.files import tree_bytes
from cluster.models.cache.progress import Progress

_INTERVAL_S = 0.2


@contextmanager
def watched(folder: Path, total_bytes: int | None, progress: Progress) -> Iterator[None]:
    """Calls `progress("download", ...)` from a thread of its own until the block ends."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(_INTERVAL_S):
            done = tree_bytes(folder)
            progress(
                "download", done if total_bytes is None else min(done, total_bytes), total_bytes
            )

    thread = threading.Thread(target=watch, name="download-watch", daemon=True)
    progress("download", 0, total_bytes)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
