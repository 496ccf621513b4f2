"""A request in the line before dispatch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cluster.deadline import Deadline
from cluster.retry_after import DEFAULT_RETRY_AFTER_S
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import Asked
from router.dispatch.outlook import Outlook
from router.fairness.line import Ticket

PLENTY_S = 10.0
SLOWEST_TOKEN_S = 0.01
"""Of a prompt. A request whose deadline is farther than these have it is not priced while it waits,
which takes as long as all else that is done for it here; it is when it has its turn."""


@dataclass(slots=True, eq=False, kw_only=True)
class InLine(Ticket):
    """Its place is set once: to a lease, or to why there is none."""

    asked: Asked
    place: asyncio.Future[AdmissionLease]

    @classmethod
    def of(cls, asked: Asked) -> InLine:
        """In the running loop."""
        return cls(
            tenant=asked.tenant,
            level=asked.priority.level,
            weight=asked.weight,
            due_s=asked.deadline.at_s,
            came_s=asked.came_s,
            asked=asked,
            place=asyncio.get_running_loop().create_future(),
        )

    @property
    def is_aged(self) -> bool:
        """See Ticket."""
        return self.asked.is_promoted

    def foretold(self, wait_s: float) -> Outlook | None:
        """What it will take once it has a place, after `wait_s` in line; None: nothing is known, or
        its deadline is too far to matter. Raises Hopeless."""
        asked = self.asked
        most_s = PLENTY_S + asked.need.prompt_tokens * SLOWEST_TOKEN_S
        if asked.deadline.remaining_s > wait_s + most_s:
            return None
        outlook = asked.prospect.outlook()
        if not asked.is_let_in:
            check_wait(outlook, wait_s, asked.deadline)
        return outlook


def check_wait(outlook: Outlook | None, wait_s: float, deadline: Deadline) -> None:
    """Raises Hopeless for who would wait so long, and then take what is foretold, if anything."""
    behind = (outlook or Outlook()).after(1000 * wait_s)
    behind.check(behind.most_ms, deadline, max(DEFAULT_RETRY_AFTER_S, wait_s))
