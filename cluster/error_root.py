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
