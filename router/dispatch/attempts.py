"""Where a request has been tried, and whether an error is a reason to try it elsewhere.

an error before any token, that another worker may not have -> once more, on another worker
a worker's own fault -> that worker rests
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.errors import (
    InternalError,
    NotReady,
    OutOfBlocks,
    PairingMismatch,
    SplitserveError,
    TransferFailed,
    WorkerLost,
)
from cluster.identity import Role, WorkerKey
from router.dispatch.time_limits import NothingCame
from router.fleet.fleet import Fleet


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What follows from an error."""

    max_workers: int
    """How many workers one request may meet before the error is its own."""
    is_workers_fault: bool = False
    """True when the worker should rest."""


ELSEWHERE: dict[type[SplitserveError], RetryRule] = {
    WorkerLost: RetryRule(2, is_workers_fault=True),
    InternalError: RetryRule(2, is_workers_fault=True),
    NothingCame: RetryRule(2),  # whether it stands is judged whenever a request leaves a worker
    TransferFailed: RetryRule(2),
    NotReady: RetryRule(3),
    PairingMismatch: RetryRule(3),
    OutOfBlocks: RetryRule(3),
}
"""Errors that another worker may not have. Two for those that a request itself may bring about: one
that has cost two workers their step is not tried on a third."""
_FINAL = RetryRule(1)


class Attempts:
    """Of one request: never the same worker twice."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tried: frozenset[WorkerKey] = frozenset()
        self._first_error: SplitserveError | None = None

    @property
    def tried(self) -> frozenset[WorkerKey]:
        """Decode workers that it was sent to."""
        return self._tried

    @property
    def first_error(self) -> SplitserveError | None:
        """Why the first attempt failed."""
        return self._first_error

    def sent(self, worker: WorkerKey) -> None:
        """The request goes there."""
        self._tried |= {worker}

    def failed(self, worker: WorkerKey, error: SplitserveError) -> None:
        """The request failed there, with or without a token."""
        self._first_error = self._first_error or error
        if retry_rule(error).is_workers_fault:
            self._fleet.note_request(worker, failed=True)

    def may_go_on(self, error: SplitserveError) -> bool:
        """True when another worker is there that may not have the error."""
        others = (item for item in self._fleet.ready(Role.DECODE) if item.key not in self._tried)
        return len(self._tried) < retry_rule(error).max_workers and any(others)


def retry_rule(error: SplitserveError) -> RetryRule:
    """The row of the nearest class in the table; other errors are the request's own."""
    return next((ELSEWHERE[cls] for cls in type(error).__mro__ if cls in ELSEWHERE), _FINAL)
