"""What a request's prompt is charged before it is known what it took.

sent -> as it is expected, the first time -> computed: as it was
                                          -> left before: as far as it can have been
"""

from __future__ import annotations

from router.fairness.shares import Bill
from router.telemetry.decisions import Decision


class PromptCharge:
    """Of one request, for all of its places."""

    __slots__ = ("_is_open",)

    def __init__(self) -> None:
        self._is_open = False
        """It is charged as it is expected to be computed."""

    def expect(self, bill: Bill, decision: Decision) -> None:
        """Its workers are chosen."""
        if self._is_open:
            return
        self._is_open = True
        computed, cached = decision.expected_work
        bill.prompt(computed=computed, cached=cached)

    def left(self, bill: Bill, decision: Decision | None, since_dispatch_ms: float) -> None:
        """It was not computed to its end; `decision` None: it went to no worker."""
        if decision is None:
            bill.nothing_done()
        elif self._is_open:
            self._is_open = False
            computed, cached = decision.work_in(since_dispatch_ms)
            bill.prompt(computed=computed, cached=cached)
