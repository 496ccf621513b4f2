"""The prefill worker's server process."""

from __future__ import annotations

from cluster.config import WorkerOptions
from prefill_worker.service import PrefillWorker
from worker.process import run_worker


def run(options: WorkerOptions) -> int:
    """Serves until a signal or the engine's death; the process's exit code."""
    return run_worker(options, PrefillWorker())
