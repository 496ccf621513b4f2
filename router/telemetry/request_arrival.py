"""What a request met at the door, and how it ended where that was not well."""

from __future__ import annotations

import msgspec

from router.telemetry.request_course import RequestCourse
from router.tenants.priority import Priority


class RequestArrival(msgspec.Struct):
    """Of one request. Written by whoever knows: the line, and who ends the request."""

    request_id: str = ""
    tenant: str = ""
    priority: Priority = Priority.STANDARD
    num_before: float | None = None
    """That were to be served before it; None: it had its place at once."""
    num_waiting: int = 0
    """Of all classes, when it came."""
    line_ms: float = 0.0
    """That the line was expected to take it."""
    lacked: str = ""
    """What it waited for, in words."""
    end: str = ""
    """An error's code, or "cancelled"; empty: it runs, or ended well."""
    error: str = ""
    """In words."""
    course: RequestCourse = msgspec.field(default_factory=RequestCourse)
    """When it was where."""

    def waits(self, num_before: float, num_waiting: int, line_ms: float, lacked: str) -> None:
        """It is in line."""
        self.num_before, self.num_waiting = num_before, num_waiting
        self.line_ms, self.lacked = line_ms, lacked

    def ended(self, end: str, error: str) -> None:
        """Not well."""
        self.end, self.error = end, error
