"""Reads what a rank gains, beside its steps: one thread for one staging.

    start -> read, read, ... -> all read
                  '-> failed: said in the log, with the cause; the conductor drops it, tries again

The thread holds nothing that a step waits for. It is not awaited when the process ends.
"""

from __future__ import annotations

import threading

import structlog

from engine.model.expert_staging import ExpertStaging

_LOG = structlog.get_logger()


class StagingThread:
    """Of one ExpertStaging, which it alone reads. From one thread, but for what runs in it."""

    def __init__(self, staging: ExpertStaging) -> None:
        """Begins at once."""
        self._staging = staging
        self._is_dropped = False
        name = f"experts of layer {staging.layer}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def drop(self) -> None:
        """Nothing more is read; what is being read is not waited for."""
        self._is_dropped = True

    def join(self, timeout_s: float) -> bool:
        """Waits; True once it has read all, has failed or was dropped. For tests."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._is_dropped and self._staging.read_next():
                pass
        except Exception:
            _LOG.exception(
                "experts that are to move here could not be read; the layer stays as it is",
                layer=self._staging.layer,
                generation=self._staging.placement.generation,
                num_missing=self._staging.num_missing,
            )
