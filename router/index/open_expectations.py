"""What is expected of every worker, and what of it has still to learn the worker's new bit.

    add -> open -> the worker's bit changes -> to be moved, one by one -> open -> remove

While some are to be moved, the worker's former bits stand for it as well: what it stores, removes
or settles meanwhile counts for all of its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.identity import WorkerKey


class Expectation:
    """What a request under way is going to leave in some workers' caches; settled once."""

    __slots__ = ("_settle", "is_told", "packed", "root", "workers")

    def __init__(
        self,
        settle: Callable[[Expectation, bool], None],
        workers: list[WorkerKey],
        root: bytes,
        packed: bytes,
        *,
        is_told: bool = False,
    ) -> None:
        self._settle = settle
        self.workers = workers
        """Of whom something is still expected."""
        self.root = root
        self.packed = packed
        self.is_told = is_told
        """By another router, so that nobody here knows whether it has come already: a worker that
        clears its cache ends it."""

    def settle(self, *, came_true: bool) -> None:
        """The request is over: with success its blocks are there, else events have told which.

        Idempotent. Blocks that a worker has removed meanwhile stay removed.
        """
        self._settle(self, came_true)
        self.workers = []


@dataclass(slots=True)
class _Move:
    former: int
    left: dict[Expectation, None]


@dataclass(frozen=True, slots=True)
class NextMove:
    """One expectation of one worker, to be moved from these bits to its present one."""

    worker: WorkerKey
    former: int
    expectation: Expectation


class OpenExpectations:
    """Those that are not settled, by worker."""

    def __init__(self) -> None:
        self._open: dict[WorkerKey, dict[Expectation, None]] = {}
        self._moves: dict[WorkerKey, _Move] = {}

    def add(self, expectation: Expectation) -> None:
        """It is new, and knows the present bits of its workers."""
        for worker in expectation.workers:
            self._open.setdefault(worker, {})[expectation] = None

    def remove(self, expectation: Expectation) -> None:
        """It is settled; unknown ones are passed over."""
        for worker in expectation.workers:
            if (of_worker := self._open.get(worker)) is not None:
                of_worker.pop(expectation, None)
                if not of_worker:
                    del self._open[worker]
            if (move := self._moves.get(worker)) is not None:
                move.left.pop(expectation, None)

    def forget(self, worker: WorkerKey) -> None:
        """Nothing is expected of a worker that is gone."""
        self._open.pop(worker, None)
        self._moves.pop(worker, None)

    def move(self, worker: WorkerKey, bit: int) -> None:
        """The worker had this bit until now: all that is expected of it has to be moved, but for
        what others have told."""
        self._drop_told(worker)
        if worker in self._open:
            former = self.former_bits(worker) | bit
            self._moves[worker] = _Move(former, dict(self._open[worker]))

    def _drop_told(self, worker: WorkerKey) -> None:
        for expectation in [e for e in self._open.get(worker, ()) if e.is_told]:
            self.remove(expectation)
            expectation.workers.remove(worker)
            self.add(expectation)

    def former_bits(self, worker: WorkerKey) -> int:
        """Which bits stand for the worker beside its present one."""
        move = self._moves.get(worker)
        return 0 if move is None else move.former

    def next_move(self) -> NextMove | None:
        """Takes one of those that are to be moved; None when there are no more, and no former bit
        stands for anybody."""
        while self._moves:
            worker, move = next(iter(self._moves.items()))
            if move.left:
                return NextMove(worker, move.former, move.left.popitem()[0])
            del self._moves[worker]
        return None
