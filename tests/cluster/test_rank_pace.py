"""How ranks keep pace, told from what each has waited for the others."""

from __future__ import annotations

from cluster.rank_facts import RankWait
from cluster.rank_pace import LEAST_PLANS, PaceMeter, RankPace, paces, skew_s


def waits(*seconds: float, num_plans: int) -> list[RankWait]:
    return [
        RankWait(rank=rank, num_plans=num_plans, waited_s=waited_s)
        for rank, waited_s in enumerate(seconds)
    ]


def test_the_skew_is_what_the_fastest_waited_beyond_the_slowest_for_each_plan() -> None:
    before = waits(1.0, 0.5, 3.0, num_plans=100)
    assert skew_s(before, waits(1.5, 0.5, 3.25, num_plans=150)) == 0.01


def test_a_pace_is_what_a_rank_did_in_collectives_for_each_plan_and_how_late_it_came() -> None:
    before = [
        RankWait(rank=0, num_plans=100, waited_s=1.0, called_s=2.0),
        RankWait(rank=1, num_plans=100, waited_s=3.0, called_s=4.0),
    ]
    now = [
        RankWait(rank=0, num_plans=150, waited_s=1.5, called_s=3.0),
        RankWait(rank=1, num_plans=149, waited_s=3.25, called_s=4.5),
        RankWait(rank=2, num_plans=149, waited_s=0.5, called_s=0.5),
    ]
    assert paces(before, now) == [
        RankPace(rank=0, step_collectives_ms=20.0, step_wait_ms=10.0, step_skew_ms=0.0),
        RankPace(rank=1, step_collectives_ms=10.0, step_wait_ms=5.0, step_skew_ms=5.0),
    ]


def test_without_plans_or_a_look_before_there_is_no_skew() -> None:
    now = waits(1.0, 2.0, num_plans=5)
    assert skew_s([], now) == 0.0 and paces([], now) == []
    assert skew_s(now, waits(1.0, 4.0, num_plans=5)) == 0.0
    assert skew_s(now, []) == 0.0


def test_a_meter_takes_the_mean_of_as_many_plans_as_make_one() -> None:
    meter = PaceMeter()
    meter.take(waits(0.0, 0.0, num_plans=0))
    meter.take(waits(5.0, 0.0, num_plans=LEAST_PLANS - 1))
    assert meter.latest == []
    meter.take(waits(3.2, 0.0, num_plans=LEAST_PLANS))
    meter.take(waits(9.9, 0.0, num_plans=LEAST_PLANS + 1))
    assert [pace.step_skew_ms for pace in meter.latest] == [0.0, 3200.0 / LEAST_PLANS]
