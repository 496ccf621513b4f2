"""Whether the ranks of a group live: asked by a thread beside the conductor's steps.

    a process has ended              noticed at the next look, within LOOK_INTERVAL_S
    it stands still (FROZEN_S)       no beat, and no work that the kernel sees; it is killed
    the same, on another host        no beat for longer (FAR_FROZEN_S): beats may be lost
    it is stopped while it loads     as the kernel sees it, or by its thread's silence (heart.py)
    any of these                     the group is given up: all waits end, `check` raises RankLost

A rank beats with every plan, ten times a second while it waits for one, and while it waits for
others in shared memory. One that computes does not beat, but works; one that is starved of its core
wants to run. The first loss is the one that counts: the others only follow from it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from cluster.deadline import Clock
from cluster.errors import RankLost
from cluster.rank_facts import RankWait
from engine.runner.ranks.heart import FAR_FROZEN_S, FROZEN_S, RankHeart, StartingHeart
from ranks.launch import CONDUCTOR
from ranks.plans.plan import RankSign
from ranks.spawner import RankEnd, RankProcess

LOOK_INTERVAL_S = 0.05
_HEARTBEAT_LOOKS = 4
_log = structlog.get_logger()


class Watched(Protocol):
    """What the ranks of one generation meet in, as far as their watch needs it. Called from its
    thread."""

    @property
    def generation(self) -> int:
        """Which."""

    @property
    def far_ranks(self) -> Sequence[int]:
        """Those on other hosts than the conductor's."""

    def sign_of(self, rank: int) -> RankSign:
        """What it shows now."""

    def let_in(self) -> None:
        """At every look: gives a rank that arrives what it asks for; waits for nobody."""

    def give_up(self, rank: int) -> None:
        """Once, with the rank that was lost: whoever waits, here or at a rank, waits no more."""


class RankWatch:
    """Of one group. `start`, later `expect_beats`, and `close`; the rest from any thread."""

    def __init__(
        self,
        processes: Sequence[RankProcess],
        watched: Watched,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._processes, self._watched = tuple(processes), watched
        far = watched.far_ranks
        self._hearts = {
            process.rank: RankHeart(
                process.signs_of_life, clock, FAR_FROZEN_S if process.rank in far else FROZEN_S
            )
            for process in processes
        }
        self._starting = {
            process.rank: StartingHeart(process.signs_of_life, clock) for process in processes
        }
        self._beats_are_due = False
        self._loss: RankLost | None = None
        self._then: Callable[[], None] = lambda: None
        self._waits: Callable[[], bool] = lambda: False
        self._tell: Callable[[], None] = lambda: None
        self._ends_are_due = False
        self._signs: dict[int, RankSign] = {}
        self._is_lost, self._is_closed = threading.Event(), threading.Event()
        self._have_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rank-watch", daemon=True)

    def start(self) -> None:
        """Ends are noticed from now on."""
        self._thread.start()

    @property
    def waits(self) -> list[RankWait]:
        """Of the ranks, as the watch has seen them last; none before it has."""
        return [wait_of(rank, sign) for rank, sign in sorted(self._signs.items())]

    def expect_beats(self) -> None:
        """All ranks take plans: one that is silent stands still."""
        self._beats_are_due = True

    def on_loss(self, then: Callable[[], None]) -> None:
        """`then`, which may be called twice, is done after `give_up`; now where that is over."""
        self._then = then
        if self._is_lost.is_set():
            then()

    def on_wait(self, waits: Callable[[], bool], tell: Callable[[], None]) -> None:
        """Of the conductor's own thread: while it `waits`, and all ranks live, `tell` is called at
        every fourth look, on the watch's thread."""
        self._waits, self._tell = waits, tell

    def expect_ends(self) -> None:
        """The ranks are told to end: no loss any more."""
        self._ends_are_due = True

    def await_ends(self, timeout_s: float) -> bool:
        """Whether all have ended by then."""
        return self._have_ended.wait(timeout_s)

    def check(self) -> None:
        """Raises RankLost, also when nobody watches any more."""
        if self._is_lost.is_set():
            assert self._loss is not None
            raise self._loss.with_traceback(None)
        if not self._thread.is_alive() and not self._is_closed.is_set():
            raise RankLost("the watch of the ranks has ended; the group is started anew")

    def await_loss(self, timeout_s: float) -> RankLost | None:
        """For who has seen a consequence: the cause, if it is found by then."""
        self._is_lost.wait(timeout_s)
        return self._loss

    def close(self) -> None:
        """The thread has ended; the processes are the caller's again. Idempotent."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        """A watch that fails has lost the group: nobody may wait for ranks that nobody watches."""
        try:
            self._look_on()
        except Exception as error:
            _log.exception("the watch of the ranks has failed")
            if self._loss is None and not self._ends_are_due:
                self._lose(_unwatched(self._watched.generation, error))

    def _look_on(self) -> None:
        num_looks = 0
        while not self._is_closed.wait(LOOK_INTERVAL_S):
            num_looks += 1
            self._watched.let_in()
            polled = [(process.rank, process.poll()) for process in self._processes]
            ends = [(rank, end) for rank, end in polled if end is not None]
            if len(ends) == len(polled):
                self._have_ended.set()
            if self._loss is not None or self._ends_are_due:
                continue  # what they log is still passed on
            if ends:
                rank, end = min(ends, key=lambda each: each[1].is_own_doing)
                self._lose(_ended(rank, self._watched.generation, end))
            elif num_looks % _HEARTBEAT_LOOKS == 0:
                self._listen()

    def _listen(self) -> None:
        if self._beats_are_due:
            self._hear_beats()
            self._tell_of_waits()
        else:
            self._look_at_starts()

    def _look_at_starts(self) -> None:
        for process in self._processes:
            heard_ns = self._watched.sign_of(process.rank).heard_ns
            self._judge(process, self._starting[process.rank], heard_ns)

    def _hear_beats(self) -> None:
        for process in self._processes:
            sign = self._watched.sign_of(process.rank)
            self._signs = self._signs | {process.rank: sign}  # another thread reads it
            self._judge(process, self._hearts[process.rank], sign.beat_ns)

    def _judge(self, process: RankProcess, heart: RankHeart | StartingHeart, sign_ns: int) -> None:
        if heart.stands_still(sign_ns) and self._loss is None:
            self._lose(_frozen(process.rank, self._watched.generation, heart.limit_s))
            process.kill()  # afterwards: on a host that is out of reach it may take long

    def _tell_of_waits(self) -> None:
        if self._loss is None and self._waits():
            self._tell()

    def _lose(self, loss: RankLost) -> None:
        self._loss = loss
        _log.error("a rank is lost; its group ends", ranks=loss.ranks, error=loss.message)
        self._is_lost.set()
        self._watched.give_up(loss.ranks[0] if loss.ranks else CONDUCTOR)
        self._then()


def wait_of(rank: int, sign: RankSign) -> RankWait:
    """What a rank's sign says of how it stands to the others."""
    return RankWait(
        rank=rank,
        num_plans=sign.num_plans,
        waited_s=sign.waited_s,
        called_s=sign.called_s,
        stepped_s=sign.stepped_s,
    )


def _ended(rank: int, generation: int, end: RankEnd) -> RankLost:
    written = "\n".join(end.last_lines)
    last = f"; its last lines:\n{written}" if written else "; it wrote no message"
    return RankLost(
        f"rank {rank} of generation {generation} ended ({end.ending}){last}",
        ranks=(rank,),
        ending=end.ending,
        last_lines=end.last_lines,
    )


def _frozen(rank: int, generation: int, limit_s: float) -> RankLost:
    return RankLost(
        f"rank {rank} of generation {generation} stood still for {limit_s:g} s and was ended",
        ranks=(rank,),
        ending="stood still",
    )


def _unwatched(generation: int, error: Exception) -> RankLost:
    return RankLost(
        f"the watch of generation {generation} failed ({type(error).__name__}: {error}); the group "
        "is started anew"
    )
