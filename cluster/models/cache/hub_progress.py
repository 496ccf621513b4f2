"""What the hub's client says of its own progress, told to a `ByteProgress`."""

from __future__ import annotations

import threading
from typing import Any

from cluster.models.files.progress import ByteProgress


def silent_bars(progress: ByteProgress, done_bytes: int, total_bytes: int) -> Any:
    """A `tqdm_class` for `snapshot_download`, whose bars draw nothing.

    The client has several bars that count bytes, of what the network gave and of what is on disk;
    the furthest one is told, on top of the `done_bytes` that were there before.
    """
    from huggingface_hub.utils.tqdm import tqdm

    lock = threading.Lock()
    furthest = 0

    def tell(num_bytes: int) -> None:
        nonlocal furthest
        with lock:  # the client fetches files side by side
            furthest = max(furthest, num_bytes)
            progress("download", min(done_bytes + furthest, total_bytes), total_bytes)

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts_bytes = kwargs.get("unit") == "B"
            self._num_bytes = 0
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            if self._counts_bytes:
                self._num_bytes += int(n or 0)
                tell(self._num_bytes)

    return Bar
