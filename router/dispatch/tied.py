"""Two attempts of one request, tied (Dean and Barroso, "The Tail at Scale", CACM 2013).

    one --late--> two --either has a token---> that one
     |             '--- either fails ----------> the other
     '- no other pair has room, or no retry is left: one

Only the first to have a token is heard: the other is cancelled in that moment. The client has heard
nothing of either before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from cluster.deadline import Clock
from cluster.errors import SplitserveError
from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from cluster.process.own_lateness import LateTurn
from router.dispatch.attempts import may_differ_elsewhere
from router.dispatch.running_request import RunFollower, RunningRequest
from router.dispatch.stream import ChoiceTokens, PromptCost, PromptTokens, RoutedRequest
from router.dispatch.time_limits import HEARING_S
from router.fleet.prompt_turns import Turn
from router.fleet.room_part import RoomPart
from router.fleet.token_taker import TokenTaker
from router.telemetry.decisions import Decision


class Outrun(SplitserveError):
    """Another attempt had its first token sooner. No client is told."""


class Attempt(msgspec.Struct, eq=False):
    """A request at its workers, and what it holds of them beside the request's own place."""

    run: RunningRequest
    request: RoutedRequest
    """As its workers have it."""
    decision: Decision
    part: RoomPart | None = None
    turn: Turn | None = None

    @property
    def worker(self) -> WorkerKey:
        """The decode worker."""
        return self.run.decode

    def give_back(self) -> None:
        """What it holds; idempotent."""
        if self.part is not None:
            self.part.release()
        if self.turn is not None:
            self.turn.over()

    def close(self) -> None:
        """Cancels at the worker unless it has ended there; idempotent."""
        self.give_back()
        self.run.close()


SendFirst = Callable[[RunFollower], Attempt]
SendMore = Callable[[RunFollower], Attempt | None]


class Racing(RunFollower, Protocol):
    """What two attempts are of: Journey."""

    def failed_beside(self, worker: WorkerKey, error: SplitserveError) -> None:
        """One of two attempts has; the other goes on."""

    def goes_over(self, attempt: Attempt) -> None:
        """That one goes on, and has from now on the request's place."""


class Tied:
    """From the event loop only. The first attempt is sent when constructed."""

    def __init__(
        self, request: Racing, send: SendFirst, send_more: SendMore, late_s: float, clock: Clock
    ) -> None:
        """`send_more`: a second attempt, if there is where; asked once, `late_s` later."""
        self._request = request
        self._send_more = send_more
        self._turn = LateTurn(clock)
        self._attempts: dict[_Ear, Attempt] = {}
        """Those that may still have the first token; then the one that had it."""
        self._current = ear = _Ear(self, request)
        self._attempts[ear] = self.first = send(ear)
        self.second: Attempt | None = None
        self._timer = self._armed_for(late_s)

    async def next(self) -> PromptTokens | ChoiceTokens | tuple[Usage, Timing]:
        """See RunningRequest."""
        while True:
            attempt = self._attempts[self._current]
            try:
                return await attempt.run.next()
            except SplitserveError:
                if attempt is self._attempts.get(self._current):
                    raise
                attempt.close()  # another one goes on

    def hand_to(self, taker: TokenTaker) -> None:
        """Nothing is: of two attempts only `next` knows whose tokens are heard."""

    def close(self) -> None:
        """Cancels whatever has not ended; idempotent."""
        self._timer.cancel()
        for attempt in (self.first, self.second):
            if attempt is not None:
                attempt.close()

    def has_come(self, ear: _Ear) -> None:
        """That attempt has a token, read or not."""
        self._timer.cancel()
        if len(self._attempts) > 1:
            self._goes_on(ear)

    def failed(self, ear: _Ear, error: SplitserveError) -> bool:
        """That attempt has; True when another one goes on."""
        self._timer.cancel()
        others = [other for other in self._attempts if other is not ear]
        if not others or (ear is self._current and not may_differ_elsewhere(error)):
            self._goes_on(ear)
            return False
        self._request.failed_beside(self._attempts[ear].worker, error)
        self._goes_on(others[0])
        return True

    def is_heard(self, ear: _Ear) -> bool:
        """False once another attempt has won."""
        return ear in self._attempts

    def _goes_on(self, ear: _Ear) -> None:
        """Alone."""
        losers = [(e, attempt) for e, attempt in self._attempts.items() if e is not ear]
        winner, was_current = self._attempts[ear], self._current
        self._attempts, self._current = {ear: winner}, ear
        if ear is not was_current:
            self._request.goes_over(winner)
        for loser, attempt in losers:
            attempt.run.leave(Outrun("another attempt had its first token sooner"))
            attempt.give_back()
            if loser is not was_current:
                attempt.close()  # nobody waits for it

    def _armed_for(self, seconds: float) -> asyncio.TimerHandle:
        self._turn.due_in(seconds)
        return asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """It is late, unless the loop itself was: then what has arrived is read first."""
        if self._turn.spares():
            self._timer = self._armed_for(min(self._turn.late_s, HEARING_S))
            return
        ear = _Ear(self, self._request)
        self.second = self._send_more(ear)
        if self.second is not None:
            self._attempts[ear] = self.second


class _Ear(RunFollower):
    """Hears of one attempt, and tells the request while that one may be its own."""

    def __init__(self, tied: Tied, request: Racing) -> None:
        self._tied = tied
        self._request = request

    def computed(self, cost: PromptCost) -> None:
        """See RunFollower."""
        if self._tied.is_heard(self):
            self._tied.has_come(self)
            self._request.computed(cost)

    def searched(self, num_tokens: int) -> None:
        """See RunFollower."""
        if self._tied.is_heard(self):
            self._request.searched(num_tokens)

    def has_tokens(self) -> None:
        """See RunFollower."""
        if self._tied.is_heard(self):
            self._tied.has_come(self)
            self._request.has_tokens()

    def ended(self, error: SplitserveError | None) -> None:
        """See RunFollower."""
        if self._tied.is_heard(self) and (error is None or not self._tied.failed(self, error)):
            self._request.ended(error)
