"""When a request was where: stamps of the router's clock, kept with what it met at the door.

    arrived -> read -> admitted -> sent (a leg) -> computed -> first token -> ended
                          ^                '- taken from there, or failed: another leg -'
                          '---- gave its place to a higher class -----------'

Written by whoever knows, and read by `splitserve trace`, by `slow`, and by what exports traces. Two
processes' clocks are never compared: what a worker says are durations, laid between two messages.
"""

from __future__ import annotations

import msgspec

from cluster.identity import WorkerKey
from cluster.prompt_stages import PromptStages

MAX_LEGS = 12
"""That are kept of one request: what leaves its workers more often is told by its notes."""


class Leg(msgspec.Struct):
    """A request at one decode worker. Stamps in seconds of the router's clock; None: not yet."""

    decode: WorkerKey
    prefill: WorkerKey | None
    """The first that was proposed; None: the decode worker alone."""
    sent_s: float
    computed_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    end: str = ""
    """An error's code; empty: it runs, or ended well."""
    stages: PromptStages | None = None
    """The worker's own word, the last."""
    span_id: bytes | None = None
    """In its request's trace; None: that is not traced."""

    def over(self, now_s: float, end: str = "") -> None:
        """The first end counts."""
        if self.ended_s is None:
            self.ended_s, self.end = now_s, end


class RequestCourse(msgspec.Struct):
    """Of one request; all stamps as in Leg."""

    arrived_s: float = 0.0
    """Its first byte."""
    read_s: float | None = None
    """It was checked, and its text made tokens."""
    admitted_s: float | None = None
    """It had its place; the last time, if it gave it up."""
    first_token_s: float | None = None
    """Left the router."""
    ended_s: float | None = None
    legs: list[Leg] = []

    def goes(self, leg: Leg) -> None:
        """To one more worker."""
        if len(self.legs) < MAX_LEGS:
            self.legs.append(leg)

    def since_arrival_ms(self, stamp_s: float | None) -> float | None:
        """Of a stamp, which may not have come."""
        return None if stamp_s is None else (stamp_s - self.arrived_s) * 1000
