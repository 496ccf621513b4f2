"""When which layer is measured, read, placed and given up; by a clock that stands still."""

from __future__ import annotations

from typing import cast

import pytest

from cluster.models.expert_placement import ExpertPlacement, in_runs
from engine.model.experts import rebalancer as rebalancer_module
from engine.model.experts.balancing import Balancing
from engine.model.experts.rank_experts import Outcome, RankExperts
from engine.model.experts.rebalancer import LEAST_PICKS, READING_LIMIT_S, Rebalancer
from engine.model.experts.words import Drop, ExpertWord, Measure, Place, Stage, pack, stage, unpack

INTERVAL_S = 30.0
HOT = [9000, 8000, 1000, 2000]
EVEN = [5000, 5000, 5000, 5000]


class StoppedClock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def placements() -> dict[int, ExpertPlacement]:
    return {1: in_runs(4, 2), 2: in_runs(4, 2)}


@pytest.fixture
def rebalancer(clock: StoppedClock, placements: dict[int, ExpertPlacement]) -> Rebalancer:
    """Which has measured once: from then on it counts."""
    made = Rebalancer(placements, INTERVAL_S, clock=clock)
    clock.now_s += INTERVAL_S
    assert made.next_word() == Measure()
    assert made.measured([[0] * 4] * 3) is None
    return made


def staged(rebalancer: Rebalancer, clock: StoppedClock, picks: list[list[int]]) -> Stage | None:
    """After the interval."""
    clock.now_s += INTERVAL_S
    assert rebalancer.next_word() == Measure()
    return rebalancer.measured(picks)


def test_nothing_is_asked_before_the_interval_is_over(
    rebalancer: Rebalancer, clock: StoppedClock
) -> None:
    assert rebalancer.next_word() is None
    clock.now_s += INTERVAL_S
    assert rebalancer.next_word() == Measure()


def test_the_worst_layer_is_staged_at_once_and_placed_when_all_have_read(
    rebalancer: Rebalancer, clock: StoppedClock, placements: dict[int, ExpertPlacement]
) -> None:
    word = staged(rebalancer, clock, [[0] * 4, [6000, 5000, 4000, 4000], HOT])
    assert word is not None
    assert (word.layer, word.generation) == (2, 1)
    assert rebalancer.balance.imbalance == {1: pytest.approx(22 / 19), 2: 1.7}
    assert rebalancer.next_word() is None
    clock.now_s += 1.0
    asked = rebalancer.next_word()
    assert isinstance(asked, Place)
    assert asked.placement == word.placement
    rebalancer.tried(is_placed=False)
    assert rebalancer.next_word() is None
    clock.now_s += 1.0
    assert rebalancer.next_word() == asked
    placements[2] = word.placement
    rebalancer.tried(is_placed=True)
    assert rebalancer.next_word() is None
    clock.now_s += INTERVAL_S
    assert rebalancer.next_word() == Measure()
    assert rebalancer.balance.num_rebalances == 1


def test_a_layer_is_judged_by_what_was_picked_since_the_last_measurement(
    rebalancer: Rebalancer, clock: StoppedClock
) -> None:
    assert staged(rebalancer, clock, [[0] * 4, EVEN, EVEN]) is None
    grown = [have + more for have, more in zip(EVEN, HOT, strict=True)]
    word = staged(rebalancer, clock, [[0] * 4, EVEN, grown])
    assert word is not None
    assert word.layer == 2
    assert rebalancer.balance.imbalance == {1: 1.0, 2: 1.7}


def test_what_was_picked_before_the_first_measurement_moves_nothing(
    clock: StoppedClock, placements: dict[int, ExpertPlacement]
) -> None:
    rebalancer = Rebalancer(placements, INTERVAL_S, clock=clock)
    assert staged(rebalancer, clock, [HOT, HOT, HOT]) is None
    assert rebalancer.balance.imbalance == {}


def test_a_layer_with_few_picks_says_nothing(rebalancer: Rebalancer, clock: StoppedClock) -> None:
    few = [LEAST_PICKS - 1, 0, 0, 0]
    assert staged(rebalancer, clock, [few, few, few]) is None


def test_what_is_not_read_in_time_is_dropped_and_tried_again_ever_later(
    rebalancer: Rebalancer, clock: StoppedClock
) -> None:
    picks, waits = [0, 0, 0, 0], []
    for _ in range(3):
        picks = [have + more for have, more in zip(picks, HOT, strict=True)]
        while rebalancer.next_word() is None:
            clock.now_s += INTERVAL_S
        assert rebalancer.measured([[0] * 4, picks, picks]) is not None
        clock.now_s += READING_LIMIT_S
        assert rebalancer.next_word() == Drop()
        rebalancer.dropped()
        began_s = clock.now_s
        while rebalancer.next_word() is None:
            clock.now_s += 1.0
        waits.append(clock.now_s - began_s)
    assert waits == [INTERVAL_S, 2 * INTERVAL_S, 4 * INTERVAL_S]
    assert rebalancer.balance.num_failures == 3
    assert rebalancer.balance.num_rebalances == 0


def test_a_plan_that_fails_is_counted_and_raises_nothing(
    rebalancer: Rebalancer, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(rebalancer_module, "plan_placement", broken)
    assert staged(rebalancer, clock, [HOT, HOT, HOT]) is None
    assert rebalancer.balance.num_failures == 1
    assert rebalancer.next_word() is None


def test_words_arrive_as_they_were_said() -> None:
    placement = in_runs(4, 2).changed_to([1, 0, 0, 1])
    for word in (Measure(), Drop(), stage(3, placement), rebalancer_module.place(3, placement)):
        told = unpack(pack(word))
        assert type(told) is type(word)
        if isinstance(told, Stage):
            assert (told.layer, told.placement) == (3, placement)


class OwnRank:
    """Follows, and has never read."""

    def follow(self, word: ExpertWord) -> Outcome:
        return Outcome()


def test_a_plan_under_way_is_given_up_in_time_though_no_step_comes(
    rebalancer: Rebalancer, clock: StoppedClock
) -> None:
    told: list[bytes] = []
    balancing = Balancing(rebalancer, cast(RankExperts, OwnRank()), told.append)
    clock.now_s += INTERVAL_S
    balancing.go_on()
    assert told == []  # nothing is begun without steps
    assert rebalancer.next_word() == Measure()
    assert rebalancer.measured([[0] * 4, HOT, HOT]) is not None
    clock.now_s += READING_LIMIT_S
    balancing.go_on()
    assert [unpack(word) for word in told] == [Drop()]
    clock.now_s += INTERVAL_S
    balancing.go_on()
    assert len(told) == 1
