"""How long a request may wait: until its first token, from token to token, and in all.

    first byte -- queue, prefill, transfer --> token -- decode --> token -- ... --> end
        |------------ first_token -------------|-- between_tokens_s --|
        |----------------- whole: what the client has allowed, if it said so ------|

A long healthy stream has no end of its own: what is bounded by default is every wait in it. A wait
at a worker that serves others meanwhile is a long queue; where it serves nobody, the fault is its.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from cluster.deadline import MAX_TIMEOUT_S, Clock, Deadline, deadline_passed
from cluster.errors import DeadlineExceeded
from cluster.process.own_lateness import LateTurn

HEARING_S = 1.0
"""For reading what arrived while the loop stood, at most."""


class NothingCame(DeadlineExceeded):
    """A limit of the router's own passed, and the worker stands: see `Standstill`."""


class TimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one request; made once, when its first byte has arrived."""

    arrived_s: float
    """When that was, on `clock`."""
    first_token_s: float
    between_tokens_s: float
    asked_s: float | None = None
    """The client's own deadline: covers everything, and takes the place of `first_token_s`."""
    went_on_s: float | None = None
    """When a worker went on with an answer of another's, on `clock`; `first_token_s` counts from
    then on. None: none did."""
    clock: Clock = time.monotonic

    @property
    def whole(self) -> Deadline:
        """When the request is over whatever happens."""
        return self._after(MAX_TIMEOUT_S if self.asked_s is None else self.asked_s)

    @property
    def client_is_late(self) -> bool:
        """The deadline that the client named has passed."""
        return self.asked_s is not None and self.whole.has_passed

    @property
    def to_first_token(self) -> Deadline:
        """What bounds every wait before the first token."""
        if self.asked_s is not None or self.went_on_s is None:
            return self._after(self.first_token_s if self.asked_s is None else self.asked_s)
        return Deadline(self.went_on_s + self.first_token_s, self.clock)

    def after(self, last_token_s: float | None) -> Deadline:
        """What bounds the wait for the next token; None: there is none yet."""
        if last_token_s is None:
            return self.to_first_token
        whole = self.whole
        return Deadline(min(whole.at_s, last_token_s + self.between_tokens_s), self.clock)

    def begun_again(self) -> TimeLimits:
        """As much time for the first token from now on; what the client asked for stays."""
        waited_s = self.clock() - self.arrived_s
        return msgspec.structs.replace(self, first_token_s=waited_s + self.first_token_s)

    def going_on(self) -> TimeLimits:
        """As `begun_again`, of an answer whose client has tokens of another worker."""
        return msgspec.structs.replace(self, went_on_s=self.clock())

    def _after(self, seconds: float) -> Deadline:
        return Deadline(self.arrived_s + seconds, self.clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTimes:
    """A router's limits for requests that name none."""

    first_token_s: float
    between_tokens_s: float
    clock: Clock = field(default=time.monotonic, compare=False, repr=False)

    def limits(self, arrived_s: float, asked_s: float | None) -> TimeLimits:
        """For a request whose first byte came at `arrived_s`, on `clock`."""
        return TimeLimits(
            arrived_s=arrived_s,
            first_token_s=self.first_token_s,
            between_tokens_s=self.between_tokens_s,
            asked_s=asked_s,
            clock=self.clock,
        )


class ProgressWatch:
    """Waits beside a running request; `on_late` is called once, with why, unless it is stopped.
    `stands`: whether its worker has made nothing for anybody for as long as a token may take.

    One timer a request, which looks at how far the request has come when it fires: tokens cost
    nothing. A look that is late itself judges nobody by the router's own limits: the loop stood,
    and reads first what has arrived. The next look judges.
    """

    def __init__(
        self,
        limits: TimeLimits,
        last_token_s: Callable[[], float | None],
        on_late: Callable[[DeadlineExceeded], None],
        *,
        stands: Callable[[], bool],
    ) -> None:
        self._limits = limits
        self._last_token_s = last_token_s
        self._on_late = on_late
        self._stands = stands
        self._turn = LateTurn(limits.clock)
        self._ended_blind: bool | None = None
        self._timer = self._armed()

    def stop(self) -> None:
        """Idempotent."""
        self._timer.cancel()

    @property
    def is_blind(self) -> bool:
        """True when this request can judge nobody: at its end the loop had stood, so that what has
        arrived may not be read."""
        return self._turn.is_late if self._ended_blind is None else self._ended_blind

    def _armed(self) -> asyncio.TimerHandle:
        limits = self._limits
        remaining_s = min(limits.after(self._last_token_s()).remaining_s, limits.between_tokens_s)
        return self._armed_for(remaining_s)

    def _armed_for(self, seconds: float) -> asyncio.TimerHandle:
        self._turn.due_in(seconds)
        return asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        last_token_s = self._last_token_s()
        if not self._limits.after(last_token_s).has_passed:
            self._turn.needs_none()
            self._timer = self._armed()
        elif not self._limits.whole.has_passed and self._turn.spares():
            self._timer = self._armed_for(min(self._turn.late_s, HEARING_S))
        else:
            self._ended_blind = self._limits.whole.has_passed and self._turn.is_late
            self._on_late(self._why(last_token_s))

    def _why(self, last_token_s: float | None) -> DeadlineExceeded:
        limits = self._limits
        if limits.client_is_late:
            return deadline_passed(limits.asked_s)
        late = NothingCame if self._stands() else DeadlineExceeded
        if last_token_s is None and limits.went_on_s is not None:
            return late(
                f"no token came for {limits.first_token_s:g} s from the worker that the answer "
                "went on with; raise --default-timeout-s, or add workers"
            )
        if last_token_s is None:
            return late(
                f"no token came within {limits.first_token_s:.4g} s; ask for more time "
                "(X-Request-Timeout), raise --default-timeout-s, or add workers"
            )
        return late(
            f"no token came for {limits.between_tokens_s:g} s; raise --stream-timeout-s where that "
            "is usual"
        )
