"""Where a request has been tried, and whether an error is a reason to try it elsewhere.

an error that another worker may not have -> once more, on another worker
a worker's own fault -> that worker rests
a worker that is asked to stop -> on another one, which counts against nobody
a worker that is lost, or stops -> on the next one that comes, be it the same by a new session

Once its client has tokens, a request goes to workers only whose tokens are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.errors import (
    Draining,
    InternalError,
    NotReady,
    OutOfBlocks,
    PairingMismatch,
    RequestGivenUp,
    SplitserveError,
    TransferFailed,
    WorkerLost,
    status_of,
)
from cluster.identity import Role, WorkerKey
from router.dispatch.first_part import FirstPart
from router.dispatch.retry_budget import RetryBudget
from router.dispatch.room import with_as_much_room
from router.dispatch.stream import RoutedRequest
from router.dispatch.time_limits import NothingCame
from router.dispatch.worker_needs import WorkerNeeds
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.worker_session import SessionLost

MAX_MOVES = 8
"""Workers that one request leaves because they stop: each costs its prompt once more. From then on
it stays, for as long as its worker does."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What follows from an error."""

    max_workers: int
    """How many workers one request may meet before the error is its own."""
    is_workers_fault: bool = False
    """True when the worker should rest."""
    is_refusal: bool = False
    """True when the worker has done nothing for it: counted apart."""


@dataclass(frozen=True, slots=True)
class AttemptRules:
    """Of a router, for all of its requests."""

    budget: RetryBudget
    continues: bool = True
    """Answers go on with another worker when theirs is lost, stands or stops."""
    max_given_way: int = 1
    """How often a request leaves its workers for one of a higher class."""
    hedge_after: float | None = None
    """When a first token is late: see Hedging."""


class MovedOn(Draining):
    """The request is taken away from a worker that stops. No client is told, but where no other
    worker could take it."""

    def __init__(self) -> None:
        super().__init__("the decode worker was asked to stop, and no other could take the request")


ELSEWHERE: dict[type[SplitserveError], RetryRule] = {
    WorkerLost: RetryRule(2, is_workers_fault=True),
    InternalError: RetryRule(2, is_workers_fault=True),
    NothingCame: RetryRule(2),  # whether it stands is judged whenever a request leaves a worker
    TransferFailed: RetryRule(2),
    NotReady: RetryRule(3, is_refusal=True),
    PairingMismatch: RetryRule(3, is_refusal=True),
    OutOfBlocks: RetryRule(3, is_refusal=True),
}
"""Errors that another worker may not have. Two for those that a request itself may bring about: one
that has cost two workers their step is not tried on a third."""
_FINAL = RetryRule(1)


class Attempts:
    """Of one request: the same worker twice only where its session was lost."""

    def __init__(
        self,
        fleet: Fleet,
        rules: AttemptRules,
        needs: WorkerNeeds | None = None,
        *,
        pooling: str = "",
    ) -> None:
        """`needs` None: any worker will do. `pooling`: of a prompt that is pooled, how."""
        self._fleet, self._pooling = fleet, pooling
        self._budget, self._continues = rules.budget, rules.continues
        self._max_given_way = rules.max_given_way
        self._num_given_way = 0
        self._budget.begun()
        self._tried: frozenset[WorkerKey] = frozenset()
        self._current: FleetMember | None = None
        self._last_error: SplitserveError | None = None
        self._needs = needs or WorkerNeeds()
        self._num_failed = self._num_refused = self._num_lost = self._num_moves = 0
        self._is_judged = False
        """The worker that has the request, for how it ended there."""

    @property
    def excluded(self) -> frozenset[WorkerKey]:
        """Workers that it must not be sent to: those that had it, and those that are not what it
        needs."""
        return self._tried | self._needs.excluded(self._fleet, self._answering)

    @property
    def pairing_key(self) -> str | None:
        """Of workers that would go on with what the client has; None: it has nothing."""
        return self._needs.pairing_key

    def part_of_worker(self, cached_tokens: int, adapter: str) -> FirstPart | None:
        """Where tokens of the worker that has the request are from; None: it has left."""
        if self._current is None:
            return None
        here = self._current
        return FirstPart(here.pairing_key, cached_tokens, adapter, here.member.draws)

    @property
    def last_error(self) -> SplitserveError | None:
        """What the client is told where there is no worker for another attempt."""
        return None if self._last_error is None else self.final(self._last_error)

    @property
    def waits_for_others(self) -> bool:
        """True when the next worker may have to come first; asked once it was told to `failed`."""
        assert self._last_error is not None
        return self._may_wait(self._last_error)

    def computed_by(self, adapter: str) -> None:
        """By the adapter of that digest from now on."""
        self._needs.adapter = adapter

    def sent(self, worker: WorkerKey) -> None:
        """The request goes there."""
        if self._last_error is not None and not self._is_free(self._last_error):
            self._budget.spend()
        self._tried |= {worker}
        self._current = self._fleet.find(worker)
        self._is_judged = False

    def begun(self) -> None:
        """The client has tokens of the worker that has the request."""
        if self._current is not None:
            self._needs.pairing_key = self._current.pairing_key

    def failed(self, worker: WorkerKey, error: SplitserveError) -> None:
        """The request failed there, with or without a token."""
        self._last_error = error
        self.judge(worker, error)
        if isinstance(error, SessionLost):
            self._tried -= {worker}
        if self._is_stopping(error):
            self._num_moves += 1
        elif retry_rule(error).is_refusal:
            self._num_refused += 1
        else:
            self._num_failed += 1
            self._num_lost += isinstance(error, WorkerLost)

    @property
    def may_give_way(self) -> bool:
        """True while it has not given its place up as often as it may."""
        return self._num_given_way < self._max_given_way

    def gave_way(self, worker: WorkerKey) -> None:
        """It left a worker that is well, which may get it again."""
        self._num_given_way += 1
        self._tried -= {worker}

    @property
    def may_hedge(self) -> bool:
        """True while the router may send requests twice."""
        return self._budget.has_room

    def hedged(self, worker: WorkerKey) -> None:
        """It was sent there as well."""
        self._budget.spend()
        self._tried |= {worker}

    def failed_beside(self, worker: WorkerKey, error: SplitserveError) -> None:
        """One of two attempts has failed; the other is not judged by it."""
        self.failed(worker, error)
        self._is_judged = False

    def goes_on_at(self, worker: WorkerKey) -> None:
        """Of two attempts that one is the request's."""
        self._current = self._fleet.find(worker)
        self._is_judged = False

    def judge(self, worker: WorkerKey, error: SplitserveError) -> None:
        """The error has come, read or not: a worker whose fault it is rests from now on."""
        is_fault = retry_rule(error).is_workers_fault and not self._is_stopping(error)
        if is_fault and not self._is_judged:
            self._is_judged = True
            self._fleet.note_request(worker, failed=True)

    def may_go_on(self, error: SplitserveError) -> bool:
        """True when another worker is there, or may come, that may not have the error. Asked
        before it is told to `failed`."""
        if self.pairing_key is not None and not self._continues:
            return False
        if not self._has_tries(error):
            return False
        if self._may_wait(error):
            return True
        return (self._is_free(error) or self._budget.has_room) and self._has_others()

    def may_move(self, request: RoutedRequest, begun_tokens: int) -> bool:
        """True when the request, whose longest choice has so many tokens, may leave a worker that
        serves it still: another one is well, and has as much room."""
        if not self._continues or self._num_moves >= MAX_MOVES:
            return False
        others = self._fleet.well(without=self.excluded)
        return bool(with_as_much_room(others, request, begun_tokens))

    def final(self, error: SplitserveError) -> SplitserveError:
        """What the client is told when it does not go on."""
        if self._num_lost < 2 or not isinstance(error, WorkerLost):
            return error
        return RequestGivenUp(
            f"decode workers were lost {self._num_lost} times while they had this request, which "
            f"may be the cause: it is not tried again; the last time: {error.message}"
        )

    def cause_of(self, error: SplitserveError) -> str:
        """Why it leaves a worker, in one word."""
        return "drained" if self._is_stopping(error) else status_of(error).code

    def _is_stopping(self, error: SplitserveError) -> bool:
        was_asked = self._current is not None and self._current.is_left
        return isinstance(error, Draining) or (was_asked and isinstance(error, WorkerLost))

    def _has_tries(self, error: SplitserveError) -> bool:
        if self._is_stopping(error):
            return self._num_moves < MAX_MOVES
        rule = retry_rule(error)
        num_met = self._num_refused if rule.is_refusal else self._num_failed
        return num_met + 1 < rule.max_workers

    def _may_wait(self, error: SplitserveError) -> bool:
        """Of a worker that is lost or stops, another one may be about to take the place."""
        return isinstance(error, WorkerLost) or self._is_stopping(error)

    def _is_free(self, error: SplitserveError) -> bool:
        """It costs the retry budget nothing: the worker is gone, or tells no more of what it had
        begun, so that nobody does the work twice; and all of its streams come at once."""
        if self.pairing_key is not None and isinstance(error, NothingCame):
            return True
        return self._may_wait(error)

    def _has_others(self) -> bool:
        ready = self._fleet.ready(self._answering, without=self.excluded, pooling=self._pooling)
        return bool(ready)

    @property
    def _answering(self) -> Role:
        return Role.PREFILL if self._pooling else Role.DECODE


def may_differ_elsewhere(error: SplitserveError) -> bool:
    """True for an error that another worker may not have."""
    return retry_rule(error).max_workers > 1


def retry_rule(error: SplitserveError) -> RetryRule:
    """The row of the nearest class in the table; other errors are the request's own."""
    return next((ELSEWHERE[cls] for cls in type(error).__mro__ if cls in ELSEWHERE), _FINAL)
