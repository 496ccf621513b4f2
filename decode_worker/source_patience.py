"""How long one prefill worker is waited for on account of one request.

    a word             its engine lives: the connection is kept
    a word that moves  this prompt has come closer: everything counts from there
    limits             silence: limit_s without any word
                       standstill: STANDSTILLS * limit_s of words that move nothing

A long queue that shortens is waited for, and so is a long step: nothing can be counted in it, and
the prefill worker itself ends an engine whose step never ends.
"""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.process.silence import Silence
from protos import handoff_pb2

STANDSTILLS = 3.0
"""A source that lives gets so many times the patience for one that is silent."""


class SourcePatience:
    """Of one source; told of every event of its stream. Call `tick` every `interval_s`."""

    def __init__(self, limit_s: float, *, clock: Clock) -> None:
        self.limit_s = limit_s
        self._silence = Silence(limit_s, clock=clock)
        self._standstill = Silence(STANDSTILLS * limit_s, clock=clock)
        self.interval_s = self._silence.interval_s
        self._clock = clock
        self._began_s = clock()
        self._tokens_ahead: int | None = None
        self._waiting_tokens = 0
        self.num_progress = 0
        """Words that only said that the engine lives."""
        self.stage = "nothing said"
        """This prompt's last own word."""

    @property
    def waited_s(self) -> float:
        """Since the source's turn came, its handshake included."""
        return self._clock() - self._began_s

    def begin(self) -> None:
        """The source is asked now: its handshake had a limit of its own."""
        self._silence.heard()
        self._standstill.heard()

    def heard(self, event: handoff_pb2.PrefillEvent) -> None:
        """Something has come."""
        self._silence.heard()
        if self._moves(event):
            self._standstill.heard()

    def tick(self) -> str | None:
        """Why the source is to be given up; None while it is waited for."""
        is_silent, stands = self._silence.tick(), self._standstill.tick()
        if is_silent:
            return (
                f"has made no progress for {self._silence.limit_s:.1f} s; "
                f"{self._waiting_tokens} prompt tokens waited there when it last spoke"
            )
        if stands:
            return (
                f"lives, but has not come closer to this prompt for {self._standstill.limit_s:.1f} "
                f"s; {self._tokens_ahead} prompt tokens are to be computed before its first token"
            )
        return None

    def _moves(self, event: handoff_pb2.PrefillEvent) -> bool:
        kind = event.WhichOneof("event")
        if kind != "progress":
            self.stage = kind or self.stage
            return True
        self.num_progress += 1
        self._waiting_tokens = event.progress.waiting_prefill_tokens
        before, self._tokens_ahead = self._tokens_ahead, event.progress.tokens_ahead
        has_fallen = before is not None and self._tokens_ahead < before
        return has_fallen or event.progress.in_long_step
