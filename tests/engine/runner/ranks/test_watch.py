"""The watch of a group: what it takes for life, and what for death."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import RankLost
from cluster.process.signs_of_life import SignsOfLife
from engine.runner.ranks.heart import (
    FAR_FROZEN_S,
    FROZEN_S,
    STARTING_SILENCE_S,
    RankHeart,
    StartingHeart,
)
from engine.runner.ranks.watch import RankWatch
from ranks.collectives.call_wait import LEAST_CALL_LIMIT_S, LONG_S, CallWait, call_limit_s
from ranks.plans.plan import RankSign
from ranks.spawner import RankEnd
from tests.manual_clock import ManualClock

LIMIT_S = 60.0
LOOK_S = 0.2
IDLE = SignsOfLife(is_stopped=False, is_busy=False, cpu_ticks=0)
STOPPED = SignsOfLife(is_stopped=True, is_busy=True, cpu_ticks=0)
RUNNABLE = SignsOfLife(is_stopped=False, is_busy=True, cpu_ticks=0)


class Looks:
    """What the kernel shows of a rank."""

    def __init__(self, signs: SignsOfLife | None) -> None:
        self.signs = signs

    def __call__(self) -> SignsOfLife | None:
        return self.signs


def seconds_to_stand_still(signs: SignsOfLife | None, beats: list[int]) -> float | None:
    """From the last beat on; None when it is thought alive for ten times the limit."""
    clock = ManualClock()
    heart = RankHeart(Looks(signs), clock)
    for beat in beats:
        clock.advance(LOOK_S)
        assert not heart.stands_still(beat)
    began = clock()
    while clock() - began < 10 * FROZEN_S:
        clock.advance(LOOK_S)
        if heart.stands_still(beats[-1]):
            return clock() - began
    return None


@pytest.mark.parametrize("signs", [IDLE, STOPPED, None])
def test_a_rank_without_beats_and_without_work_stands_still_within_the_limit(
    signs: SignsOfLife | None,
) -> None:
    found = seconds_to_stand_still(signs, [1, 2, 3])
    assert found is not None
    assert FROZEN_S < found <= FROZEN_S + 2 * LOOK_S


def test_a_rank_that_computes_or_waits_for_a_core_lives_without_beats() -> None:
    assert seconds_to_stand_still(RUNNABLE, [1]) is None


def test_a_rank_that_beats_lives_whatever_the_kernel_shows() -> None:
    clock = ManualClock()
    heart = RankHeart(Looks(IDLE), clock)
    for beat in range(100):
        clock.advance(LOOK_S)
        assert not heart.stands_still(beat)


def seconds_to_stand_still_at_start(signs: SignsOfLife | None, heard_ns: int) -> float | None:
    """None when it is thought alive for long."""
    clock = ManualClock()
    heart = StartingHeart(Looks(signs), clock)
    began = clock()
    heart.stands_still(heard_ns)
    while clock() - began < 5 * STARTING_SILENCE_S:
        clock.advance(LOOK_S)
        if heart.stands_still(heard_ns):
            return clock() - began
    return None


def test_a_rank_that_is_stopped_while_it_loads_is_noticed_as_soon_as_one_that_serves() -> None:
    found = seconds_to_stand_still_at_start(STOPPED, 0)
    assert found is not None
    assert FROZEN_S < found <= FROZEN_S + 2 * LOOK_S


def test_a_rank_that_loads_may_wait_idly_but_not_fall_silent_once_its_thread_was_heard() -> None:
    assert seconds_to_stand_still_at_start(IDLE, 0) is None
    assert seconds_to_stand_still_at_start(None, 0) is None
    found = seconds_to_stand_still_at_start(None, 1)
    assert found is not None
    assert STARTING_SILENCE_S < found <= STARTING_SILENCE_S + 10 * LOOK_S


class FakeRank:
    """A RankProcess whose end a test decides."""

    def __init__(self, rank: int) -> None:
        self.rank, self.pid, self.node = rank, 1000 + rank, "here"
        self.end: RankEnd | None = None
        self.was_killed = False
        self.num_polls = 0

    def poll(self) -> RankEnd | None:
        self.num_polls += 1
        return self.end

    def signs_of_life(self) -> SignsOfLife | None:
        return IDLE

    def kill(self) -> None:
        self.was_killed = True


class QuietGround:
    """Watched; its ranks have beaten once."""

    generation = 7

    def __init__(self, far_ranks: tuple[int, ...] = ()) -> None:
        self.far_ranks = far_ranks
        self.given_up: list[int] = []
        self.has_given_up = threading.Event()

    def sign_of(self, rank: int) -> RankSign:
        return RankSign(num_plans=0, beat_ns=1, waited_s=0.0)

    def let_in(self) -> None:
        """Nobody comes."""

    def give_up(self, rank: int) -> None:
        self.given_up.append(rank)
        self.has_given_up.set()


class Watched:
    """Two fake ranks under a real watch."""

    def __init__(self, far: tuple[int, ...] = ()) -> None:
        self.ranks = [FakeRank(1), FakeRank(2)]
        ground = QuietGround(far)
        self.given_up, self.has_given_up = ground.given_up, ground.has_given_up
        self.watch = RankWatch(self.ranks, ground)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_an_end_gives_the_group_up_once_and_is_raised_ever_after(watched: Watched) -> None:
    watched.watch.start()
    watched.watch.check()
    watched.ranks[1].end = RankEnd(exit_code=-9, last_lines=("one", "two"))
    assert watched.has_given_up.wait(LIMIT_S)
    for _ in range(2):
        with pytest.raises(RankLost, match=r"rank 2 of generation 7 ended \(signal SIGK") as lost:
            watched.watch.check()
    assert lost.value.last_lines == ("one", "two")
    watched.watch.close()
    watched.watch.close()
    assert watched.given_up == [2]


def test_of_several_ends_the_one_that_was_killed_is_the_cause(watched: Watched) -> None:
    watched.ranks[0].end = RankEnd(exit_code=1)
    watched.ranks[1].end = RankEnd(exit_code=-9)
    watched.watch.start()
    assert watched.has_given_up.wait(LIMIT_S)
    assert watched.given_up == [2]
    watched.watch.close()


def test_a_silent_rank_is_killed_once_beats_are_due(watched: Watched) -> None:
    watched.watch.start()
    watched.watch.expect_beats()
    assert watched.has_given_up.wait(LIMIT_S)
    loss = watched.watch.await_loss(LIMIT_S)
    assert loss is not None
    assert loss.ending == "stood still"
    watched.watch.close()
    assert [rank.was_killed for rank in watched.ranks] == [True, False]


def test_a_silent_rank_on_another_host_has_longer_and_its_group_waits_for_no_kill() -> None:
    """Both are silent from the beginning; one is near."""
    watched = Watched(far=(1,))
    order: list[str] = []
    watched.ranks[1].kill = lambda: order.append(f"kill after {len(watched.given_up)}")  # type: ignore[method-assign]
    watched.watch.start()
    watched.watch.expect_beats()
    assert watched.has_given_up.wait(LIMIT_S)
    watched.watch.close()
    assert watched.given_up == [2]
    assert order == ["kill after 1"]
    assert not watched.ranks[0].was_killed


def test_beats_that_come_again_after_three_seconds_are_life_on_another_host_alone() -> None:
    for limit_s, lives in ((FROZEN_S, False), (FAR_FROZEN_S, True)):
        clock = ManualClock()
        heart = RankHeart(Looks(None), clock, limit_s)
        found = []
        for beat in [1] * 16 + [2] * 16:
            clock.advance(LOOK_S)
            found.append(heart.stands_still(beat))
        assert any(found) is not lives


def test_ranks_that_are_told_to_end_are_no_loss(watched: Watched) -> None:
    watched.watch.start()
    watched.watch.expect_ends()
    for rank in watched.ranks:
        rank.end = RankEnd(exit_code=0)
    assert watched.watch.await_ends(LIMIT_S)
    watched.watch.check()
    watched.watch.close()
    assert watched.given_up == []


def test_a_watch_that_fails_gives_the_group_up_and_says_why(watched: Watched) -> None:
    def fail() -> RankEnd:
        raise OSError("too many open files")

    watched.ranks[1].poll = fail  # type: ignore[method-assign]
    watched.watch.start()
    assert watched.has_given_up.wait(LIMIT_S)
    with pytest.raises(RankLost, match=r"watch of generation 7 failed \(OSError: too many open"):
        watched.watch.check()
    watched.watch.close()


def test_what_is_to_be_done_after_a_loss_is_done_by_the_watch_or_at_once(watched: Watched) -> None:
    aborted = threading.Event()
    watched.watch.on_loss(aborted.set)
    watched.watch.start()
    watched.ranks[0].end = RankEnd(exit_code=-9)
    assert aborted.wait(LIMIT_S)
    late = threading.Event()
    watched.watch.on_loss(late.set)
    assert late.is_set()
    watched.watch.close()


class SlowCalls:
    """A collective that the conductor has been in for three seconds."""

    in_call_since_s: float | None = 997.0
    waited_s = 0.0


def test_a_long_wait_for_ranks_is_one_while_a_collective_may_take_so_long() -> None:
    clock, calls = ManualClock(), SlowCalls()
    waits = CallWait(calls, limit_s=LIMIT_S, clock=clock)
    assert waits()
    clock.advance(LIMIT_S)
    assert not waits()
    calls.in_call_since_s = None
    assert not waits()


def test_a_short_wait_is_one_where_it_has_come_or_ended_since_the_last_look() -> None:
    clock, calls = ManualClock(), SlowCalls()
    calls.in_call_since_s = clock() - LONG_S / 2
    waits = CallWait(calls, limit_s=LIMIT_S, clock=clock)
    assert not waits()
    calls.in_call_since_s, calls.waited_s = None, LONG_S / 2
    assert waits()
    assert not waits()
    clock.advance(LONG_S)
    calls.in_call_since_s = clock()
    assert waits()
    assert not waits()


def test_a_call_may_take_as_long_as_another_rank_s_step() -> None:
    assert call_limit_s(EngineOptions().step_timeout_s) == EngineOptions().step_timeout_s
    assert call_limit_s(0.1) == LEAST_CALL_LIMIT_S


def test_the_watch_tells_of_the_conductor_s_wait_until_a_rank_is_lost(watched: Watched) -> None:
    told: SimpleQueue[None] = SimpleQueue()
    watched.watch.on_wait(lambda: True, lambda: told.put(None))
    watched.watch.start()
    watched.watch.expect_beats()
    told.get(timeout=LIMIT_S)
    assert watched.has_given_up.wait(LIMIT_S)  # they never beat again
    while not told.empty():
        told.get()
    watched.watch.close()
    assert told.empty()


def test_a_signal_without_a_name_ends_a_rank_as_any_other(watched: Watched) -> None:
    watched.ranks[0].end = RankEnd(exit_code=-40)
    watched.watch.start()
    assert watched.has_given_up.wait(LIMIT_S)
    loss = watched.watch.await_loss(LIMIT_S)
    assert loss is not None
    assert loss.ending == "signal 40"
    watched.watch.close()


def test_a_watch_that_has_ended_is_a_loss_itself(watched: Watched) -> None:
    with pytest.raises(RankLost, match="the watch of the ranks has ended"):
        watched.watch.check()
