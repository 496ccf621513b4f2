"""What all errors of a fleet have in common; the tree is in `cluster/errors.py`."""

from __future__ import annotations

from dataclasses import dataclass


class SplitserveError(Exception):
    """The root. `param` names the field at fault; `retry_after_s` is set where waiting helps,
    `details` where a client is told numbers beside the message."""

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.details: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """How one class of error looks from outside."""

    code: str
    http: int
    grpc: str  # name of a grpc.StatusCode
    openai_type: str


class WorkerLost(SplitserveError):
    """The worker that held the request died."""


class LoginLost(WorkerLost):
    """Who asks has no login at a cluster's API server, or no longer: it will not come by itself."""


class RankLost(WorkerLost):
    """Ranks of a replica are dead or stand still: the others cannot go on without them.

    `ranks` are they, as far as known; `ending` is an exit code or a signal in words, `last_lines`
    what they wrote last: both are empty where nobody has seen the process end.
    """

    def __init__(
        self,
        message: str,
        *,
        ranks: tuple[int, ...] = (),
        ending: str = "",
        last_lines: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.ending = ending
        self.last_lines = last_lines
