"""The decode worker's server process."""

from __future__ import annotations

from cluster.config import WorkerOptions
from cluster.dial.grpc_dialer import GrpcDialer
from decode_worker.service import DecodeWorker
from worker.process import run_worker


def run(options: WorkerOptions) -> int:
    """Serves until a signal or the engine's death; the process's exit code."""
    return run_worker(
        options,
        DecodeWorker(progress_timeout_s=options.prefill_progress_timeout_s, dialer=GrpcDialer()),
    )
