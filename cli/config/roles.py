"""Whose options: the processes that read them."""

from __future__ import annotations

from enum import StrEnum

from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.planner_options import PlannerOptions


class ProcessKind(StrEnum):
    """As the command that starts it."""

    SERVE = "serve"
    ROUTER = "router"
    PREFILL_WORKER = "prefill-worker"
    DECODE_WORKER = "decode-worker"
    PLANNER = "planner"


OPTIONS_OF: dict[ProcessKind, type] = {
    ProcessKind.SERVE: ServeOptions,
    ProcessKind.ROUTER: RouterOptions,
    ProcessKind.PREFILL_WORKER: WorkerOptions,
    ProcessKind.DECODE_WORKER: WorkerOptions,
    ProcessKind.PLANNER: PlannerOptions,
}


def processes(kind: ProcessKind | None) -> tuple[type, ...]:
    """Classes of options; None: of all that may share a file."""
    return tuple(dict.fromkeys(OPTIONS_OF.values())) if kind is None else (OPTIONS_OF[kind],)
