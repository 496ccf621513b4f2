"""Whether more workers have helped, by what the signal is before and after."""

from __future__ import annotations

import pytest

from planner.decision import Case, Stand, decide
from planner.memory import Memory
from planner.sight import RoleSight
from tests.planner.sights import LIMITS, LONG_S, RULES, pool, seen_for, sight

LATER_S = 120.0
"""Until the new workers have come and the pool has rested."""


def steps(ratio: float, num_workers: int, signal: str = "inter_token") -> RoleSight:
    return sight(ratio, pool(wanted=num_workers), signal=signal)


def after_a_growth(
    seen: RoleSight, before: RoleSight | None = None, until_s: float = LONG_S
) -> Memory:
    """From two workers, or as it was; then it looked like this."""
    before = before or steps(0.9, 2)
    grown_s = LONG_S - LATER_S
    grown = seen_for(60, before, until_s=grown_s - 5).tried(grown_s).grown(before)
    return seen_for(until_s - grown_s, seen, grown, until_s=until_s)


TABLE: list[tuple[str, RoleSight, Stand]] = [
    ("as long as before", steps(0.9, 4), Stand.UNHELPED),
    ("a little shorter", steps(0.82, 4), Stand.UNHELPED),
    ("an eighth shorter, and it helps", steps(0.78, 4), Stand.GROWS),
    ("an eighth longer: there is more to do", steps(1.02, 4), Stand.GROWS),
    ("of another signal nothing is known", steps(0.9, 4, "wait"), Stand.GROWS),
    ("the new workers have gone again", steps(0.9, 2), Stand.GROWS),
    ("at the target", steps(0.7, 4), Stand.STEADY),
]


@pytest.mark.parametrize(("seen", "stand"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_a_pool_that_has_grown_grows_again_only_where_it_helped(
    seen: RoleSight, stand: Stand
) -> None:
    memory = after_a_growth(seen)
    assert decide(Case(seen, memory, LIMITS, RULES, LONG_S)).stand is stand


def test_one_worker_to_many_need_not_do_what_twice_as_many_would() -> None:
    before = steps(0.9, 4)
    for ratio, stand in ((0.89, Stand.UNHELPED), (0.85, Stand.GROWS)):
        after = steps(ratio, 5)
        memory = after_a_growth(after, before)
        assert decide(Case(after, memory, LIMITS, RULES, LONG_S)).stand is stand


def test_a_dip_of_one_look_is_no_change() -> None:
    over = steps(0.9, 4)
    memory = after_a_growth(over).after(steps(0.5, 4), RULES, LONG_S + 5)
    assert "inter_token" in memory.growths
    memory = seen_for(60, steps(0.5, 4), memory, until_s=LONG_S + 65)
    assert memory.growths == {}


def test_that_it_has_not_helped_is_said_with_both_numbers() -> None:
    over = steps(0.88, 4)
    why = decide(Case(over, after_a_growth(over), LIMITS, RULES, LONG_S)).why
    assert "more workers have not helped: decode steps take 0.88 of the ITL budget" in why
    assert "it was 0.90 with 2 of the 4 workers" in why


def test_what_is_beyond_all_measure_is_not_compared() -> None:
    assert Memory().grown(steps(1000.0, 2)).growths == {}
