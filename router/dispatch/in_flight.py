"""The requests that this router has taken and not ended, oldest first.

began: at the door -> sent: it is under way at workers -> over, whatever came of it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from cluster.identity import WorkerKey
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.request_clock import RequestClock
from router.dispatch.stream import RoutedRequest
from router.fleet.stage import RequestStage
from router.telemetry.decisions import Decision


class UnderWay(Protocol):
    """A request that has been sent: by this router, or by a gateway. All as of now."""

    @property
    def request(self) -> RoutedRequest:
        """As its worker has it."""
        ...

    @property
    def clock(self) -> RequestClock:
        """When its tokens came."""
        ...

    @property
    def stage(self) -> RequestStage:
        """How far it is."""
        ...

    @property
    def worker(self) -> WorkerKey | None:
        """Who decodes it; None: nobody yet."""
        ...

    @property
    def decision(self) -> Decision:
        """The last, where it has a worker."""
        ...

    @property
    def num_answer_tokens(self) -> int:
        """That its client has, over all choices."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it went where it went."""
        ...


class TakenRequest(msgspec.Struct, eq=False):
    """One of them. All it says is as of now."""

    request: RoutedRequest
    """As it came."""
    under_way: UnderWay | None = None
    """None: it has not had a place yet."""
    is_over: bool = False

    @property
    def stage(self) -> RequestStage:
        """How far it is."""
        return RequestStage.QUEUED if self.under_way is None else self.under_way.stage

    @property
    def age_s(self) -> float:
        """Since its first byte."""
        limits = self.request.limits
        return limits.clock() - limits.arrived_s

    @property
    def worker_ids(self) -> tuple[str, str]:
        """Who decodes it and who was named to compute its prompt; empty where it is nobody, and the
        second one where they are the same."""
        if self.under_way is None or (decode := self.under_way.worker) is None:
            return "", ""
        computing = self.under_way.decision.computing
        return decode.worker_id, "" if computing == decode else computing.worker_id

    @property
    def num_answer_tokens(self) -> int:
        """Relayed to its client, over all choices."""
        return 0 if self.under_way is None else self.under_way.num_answer_tokens

    @property
    def silent_s(self) -> float:
        """Since its client last got a token; since it came while it has none."""
        last_s = None if self.under_way is None else self.under_way.clock.last_token_s
        return self.age_s if last_s is None else self.request.limits.clock() - last_s

    @property
    def deadline_s(self) -> float | None:
        """Until it ends whatever happens, or its first token has to be there; None: from token to
        token its time is bounded, and as a whole it is not."""
        limits = (self.under_way or self).request.limits
        if limits.asked_s is not None:
            return limits.whole.remaining_s
        has_token = self.under_way is not None and self.under_way.clock.has_token
        return None if has_token else limits.to_first_token.remaining_s


Admitted = tuple[TakenRequest, RoutedRequest, AdmissionLease]
"""One that has its place, as it may be sent."""


class InFlight:
    """Of one router. From the event loop only."""

    def __init__(self) -> None:
        self._taken: dict[str, TakenRequest] = {}

    def __len__(self) -> int:
        return len(self._taken)

    @contextmanager
    def taken(self, request: RoutedRequest) -> Iterator[TakenRequest]:
        """A request, until the block ends."""
        here = TakenRequest(request)
        self._taken[request.request_id] = here
        try:
            yield here
        finally:
            here.is_over = True
            if self._taken.get(request.request_id) is here:
                del self._taken[request.request_id]

    def in_order(self, *, newest_first: bool) -> list[TakenRequest]:
        """All of them now: of those that are looked at later some may be over."""
        taken = self._taken.values()
        return list(reversed(taken) if newest_first else taken)
