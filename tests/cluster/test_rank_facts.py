"""How ranks keep pace, told from what each has waited for the others."""

from __future__ import annotations

from cluster.rank_facts import RankWait, skew_s


def waits(*seconds: float, num_plans: int) -> list[RankWait]:
    return [
        RankWait(rank=rank, num_plans=num_plans, waited_s=waited_s)
        for rank, waited_s in enumerate(seconds)
    ]


def test_the_skew_is_what_the_fastest_waited_beyond_the_slowest_for_each_plan() -> None:
    before = waits(1.0, 0.5, 3.0, num_plans=100)
    assert skew_s(before, waits(1.5, 0.5, 3.25, num_plans=150)) == 0.01


def test_without_plans_or_a_look_before_there_is_no_skew() -> None:
    now = waits(1.0, 2.0, num_plans=5)
    assert skew_s([], now) == 0.0
    assert skew_s(now, waits(1.0, 4.0, num_plans=5)) == 0.0
    assert skew_s(now, []) == 0.0
