"""A request at the door, and what can be known of it there."""

from __future__ import annotations

from typing import Protocol

import msgspec

from cluster.deadline import Deadline
from cluster.identity import WorkerKey
from router.dispatch.outlook import Outlook
from router.fairness.shares import Bill
from router.fleet.need import Need
from router.telemetry.request_arrival import RequestArrival
from router.tenants.priority import Priority

PROMOTED_AFTER_S = 10.0
"""In line: from then on no class is above a request's. The wait for a first token is 300 s unless
the client says less, and the longest of most answers is over in as long."""


class Prospect(Protocol):
    """What would become of a request that waits. Looked into only where it has to."""

    def is_local(self, line_ms: float) -> bool:
        """True where nobody but a decode worker would compute the prompt, if it waited so long
        here for a prefill worker."""
        ...

    def cached_tokens(self, key: WorkerKey) -> int:
        """Of its prompt, that a decode worker is believed to have."""
        ...

    def outlook(self) -> Outlook | None:
        """Once it has a place; None: nothing can be foretold. Raises what it would be told then."""
        ...


class Asked(msgspec.Struct, eq=False, kw_only=True):
    """A request at the door."""

    tenant: str = ""
    priority: Priority = Priority.STANDARD
    weight: float = 1.0
    came_s: float
    """To the router, by the deadline's clock; also of one that comes again."""
    deadline: Deadline
    """Of its first token."""
    need: Need
    prospect: Prospect
    arrival: RequestArrival = msgspec.field(default_factory=RequestArrival)
    """Told by the line."""
    bill: Bill | None = None
    """Of one that had a place before, and gave it up: it comes into the line whether that is full
    or not, and is not turned away at once."""

    is_follower: bool = False
    """Of one that another input of its request was let in with: likewise."""

    @property
    def is_let_in(self) -> bool:
        """It may wait, however many do."""
        return self.bill is not None or self.is_follower

    @property
    def is_promoted(self) -> bool:
        """True once it has waited so long that nobody of any class may delay it more."""
        return self.deadline.clock() - self.came_s >= PROMOTED_AFTER_S
