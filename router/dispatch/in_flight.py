"""The requests that this router has taken and not ended, oldest first.

began: at the door -> sent: it has a journey over workers -> over, whatever came of it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from router.dispatch.journey import Journey
from router.dispatch.stream import RoutedRequest
from router.fleet.stage import RequestStage


@dataclass(slots=True, eq=False)
class TakenRequest:
    """One of them. All it says is as of now."""

    request: RoutedRequest
    """As it came."""
    journey: Journey | None = None
    """None: it has not had a place yet."""
    is_over: bool = False

    @property
    def stage(self) -> RequestStage:
        """How far it is."""
        return RequestStage.QUEUED if self.journey is None else self.journey.stage

    @property
    def age_s(self) -> float:
        """Since its first byte."""
        limits = self.request.limits
        return limits.clock() - limits.arrived_s

    @property
    def worker_ids(self) -> tuple[str, str]:
        """Who decodes it and who was named to compute its prompt; empty where it is nobody, and the
        second one where they are the same."""
        if self.journey is None or (decode := self.journey.worker) is None:
            return "", ""
        computing = self.journey.decision.computing
        return decode.worker_id, "" if computing == decode else computing.worker_id

    @property
    def num_answer_tokens(self) -> int:
        """Relayed to its client, over all choices."""
        return 0 if self.journey is None else self.journey.choices.num_relayed_tokens

    @property
    def silent_s(self) -> float:
        """Since its client last got a token; since it came while it has none."""
        last_s = None if self.journey is None else self.journey.clock.last_token_s
        return self.age_s if last_s is None else self.request.limits.clock() - last_s

    @property
    def deadline_s(self) -> float | None:
        """Until it ends whatever happens, or its first token has to be there; None: from token to
        token its time is bounded, and as a whole it is not."""
        limits = (self.journey or self).request.limits
        if limits.asked_s is not None:
            return limits.whole.remaining_s
        has_token = self.journey is not None and self.journey.clock.has_token
        return None if has_token else limits.to_first_token.remaining_s


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
