"""One process of a fleet, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cluster.config import RouterOptions, WorkerOptions
from cluster.errors import ConfigError, SplitserveError
from cluster.planner_options import PlannerOptions
from cluster.process.startup import report_failed

Options = TypeVar("Options")


def run_router(options: RouterOptions) -> int:
    """Until it is told to stop; the exit code."""
    from router.main import run

    return _reported(run, options)


def run_prefill_worker(options: WorkerOptions) -> int:
    """Until it is told to stop; the exit code."""
    from prefill_worker.service import run

    return _reported(run, options)


def run_decode_worker(options: WorkerOptions) -> int:
    """Until it is told to stop; the exit code."""
    from decode_worker.service import run

    return _reported(run, options)


def run_planner(options: PlannerOptions) -> int:
    """Until it is told to stop; the exit code."""
    from planner.main import run

    return _reported(run, options)


def _reported(run: Callable[[Options], int], options: Options) -> int:
    """A supervisor hears of an error that ended the process, and an operator reads it."""
    try:
        return run(options)
    except SplitserveError as error:
        report_failed(error)
        raise
    except OSError as cause:
        refusal = ConfigError(f"the process cannot start: {cause}")
        report_failed(refusal)
        raise refusal from cause
