"""How long until a request's first token, before anything is spent on it.

    the router's queue | queue of who computes, prompt | blocks that are read after it | first token

From measured rates: where a worker has measured nothing yet, nothing is foretold.
"""

from __future__ import annotations

import msgspec

from cluster.deadline import Deadline
from cluster.errors import Hopeless
from router.pricing.estimates import Estimates
from router.telemetry.decisions import Decision

DOUBT = 1.25
"""By so much may workers be faster than foretold: who could be served at once is refused only where
that is not enough. And by so much may a line be slower: who would wait is not let in to wait until
it is too late."""


class Outlook(msgspec.Struct, frozen=True):
    """In milliseconds."""

    queue_ms: float = 0.0
    """In the router, and of prompts before it at who computes."""
    prefill_ms: float = 0.0
    transfer_ms: float = 0.0
    """Messages, and what is read when the prompt is computed."""

    @classmethod
    def of(cls, decision: Decision, estimates: Estimates) -> Outlook | None:
        """Of the route that was chosen; None: who would compute has measured nothing."""
        if not estimates.prefill.is_measured(decision.computing):
            return None
        cost = decision.route.chosen.cost
        return cls(cost.queue_ms, cost.prefill_ms, cost.transfer_ms + cost.handoff_ms)

    @property
    def total_ms(self) -> float:
        """Until the first token."""
        return self.queue_ms + self.prefill_ms + self.transfer_ms

    @property
    def least_ms(self) -> float:
        """What it will take at least, once it has a place."""
        return self.total_ms / DOUBT

    @property
    def most_ms(self) -> float:
        """What it may take where it has to wait for one."""
        return self.queue_ms * DOUBT + self.prefill_ms + self.transfer_ms

    @property
    def details(self) -> dict[str, float]:
        """For whoever is refused."""
        named = {"queue_ms": self.queue_ms, "prefill_ms": self.prefill_ms}
        named["transfer_ms"] = self.transfer_ms
        return {name: round(value, 1) for name, value in named.items()}

    def after(self, queue_ms: float) -> Outlook:
        """The same behind a queue of the router."""
        return msgspec.structs.replace(self, queue_ms=self.queue_ms + queue_ms)

    def check(self, needed_ms: float, deadline: Deadline, retry_after_s: float) -> None:
        """Raises Hopeless where so much time is not left."""
        remaining_ms = deadline.remaining_ms
        if needed_ms <= remaining_ms:
            return
        error = Hopeless(
            f"the first token would come after {self.total_ms:.0f} ms (queue "
            f"{self.queue_ms:.0f}, prefill {self.prefill_ms:.0f}, transfer "
            f"{self.transfer_ms:.0f}); the deadline is in {remaining_ms:.0f} ms: "
            "allow more time, or come again later",
            retry_after_s=retry_after_s,
        )
        error.details = self.details | {"deadline_ms": round(remaining_ms, 1)}
        raise error
