"""Verdicts by what is seen and remembered."""

from __future__ import annotations

import pytest

from cluster.scaling.scaler import PoolState
from planner.decision import Case, Stand, decide
from planner.memory import Memory
from planner.pool_limits import PoolLimits
from planner.sight import RoleSight
from tests.planner.sights import LIMITS, LONG_S, RULES, pool, seen_for, sight, verdict

FULL, FULL_AND_ONE = pool(wanted=8), pool(wanted=9)
TABLE: list[tuple[str, RoleSight, float, Stand, int]] = [
    ("at its target", sight(0.7), 60, Stand.STEADY, 0),
    ("within the tolerance", sight(0.76), 60, Stand.STEADY, 0),
    ("over, as the first look says", sight(1.0), 0, Stand.WATCHED, 0),
    ("over for as long as it takes", sight(1.0), 15, Stand.GROWS, 3),
    ("far over: it doubles and no more", sight(9.0), 15, Stand.GROWS, 4),
    ("far over: four at once and no more", sight(9.0, pool(wanted=5)), 15, Stand.GROWS, 8),
    ("as if there were no bound", sight(1000.0, pool(wanted=6)), 15, Stand.GROWS, 8),
    ("at its most", sight(2.0, FULL), 60, Stand.AT_MOST, 0),
    ("while workers start", sight(2.0, pool(wanted=3, ready=1)), 60, Stand.CHANGING, 0),
    ("low, not for long", sight(0.1), 590, Stand.WATCHED, 0),
    ("low for long", sight(0.1), 600, Stand.SHRINKS, 1),
    ("too near for one less", sight(0.3), 900, Stand.STEADY, 0),
    ("the same pressure of many", sight(0.3, pool(wanted=4)), 600, Stand.SHRINKS, 3),
    ("low, and requests in line", sight(0.1, in_line=1), 900, Stand.STEADY, 0),
    ("low, and what runs does not fit", sight(0.1, busy=0.5), 900, Stand.STEADY, 0),
    ("low, and what runs fits", sight(0.1, busy=0.4), 900, Stand.SHRINKS, 1),
    ("low, and there is too much to do", sight(0.1, work=0.4), 900, Stand.STEADY, 0),
    ("low, and one does what there is", sight(0.1, work=0.3), 900, Stand.SHRINKS, 1),
    ("low, and a worker is not seen", sight(0.1, num_seen=1), 900, Stand.STEADY, 0),
    ("low, and one of two is held", sight(0.0, held=1), 900, Stand.STEADY, 0),
    ("low, and one of three is held", sight(0.0, pool(wanted=3), held=1), 900, Stand.HELD, 0),
    ("over, of three ready one held", sight(1.0, pool(wanted=3), held=1), 15, Stand.GROWS, 4),
    ("over, and all are held", sight(1.0, pool(wanted=1), held=1), 15, Stand.GROWS, 2),
    ("over its most, and one is held", sight(0.7, pool(wanted=9), held=1), 0, Stand.HELD, 0),
    ("one is the least", sight(0.0, pool(wanted=1)), 900, Stand.STEADY, 0),
    ("under its least", sight(0.0, pool(wanted=0)), 0, Stand.GROWS, 1),
    ("over its most", sight(0.7, pool(wanted=9)), 0, Stand.SHRINKS, 8),
    ("over its most, one not seen", sight(0.7, FULL_AND_ONE, num_seen=8), 0, Stand.UNSEEN, 0),
    ("over its most, and it starts", sight(0.7, pool(wanted=9, ready=8)), 0, Stand.STEADY, 0),
]


@pytest.mark.parametrize(
    ("seen", "for_s", "stand", "size"),
    [pytest.param(*row[1:], id=row[0]) for row in TABLE],
)
def test_a_pool_becomes_what_the_table_says(
    seen: RoleSight, for_s: float, stand: Stand, size: int
) -> None:
    found = verdict(seen, for_s)
    assert (found.stand, found.size) == (stand, size), found.why
    assert bool(found.pool) is (stand in (Stand.GROWS, Stand.SHRINKS))
    assert found.why


def test_the_same_pressure_of_a_pool_at_its_least_changes_nothing_and_says_so() -> None:
    limits = (PoolLimits("prefill", 2, 8),)
    assert verdict(sight(0.0), 900, limits).stand is Stand.AT_LEAST


def test_after_a_change_the_next_one_waits_until_its_workers_are_ready_and_a_while_longer() -> None:
    over = sight(2.0)
    changed = seen_for(60, over).tried(LONG_S - 30)
    resting = decide(Case(over, changed, (PoolLimits("prefill", 1, 8),), RULES, LONG_S))
    assert resting.stand is Stand.RESTING
    rested = seen_for(60, over).tried(LONG_S - RULES.grow_every_s)
    again = decide(Case(over, rested, (PoolLimits("prefill", 1, 8),), RULES, LONG_S + 60))
    assert again.stand is Stand.GROWS


def test_what_somebody_else_changes_counts_as_a_change() -> None:
    memory = seen_for(60, sight(2.0, pool(wanted=2)))
    grown = sight(2.0, pool(wanted=3))
    memory = memory.after(grown, RULES, LONG_S + 5)
    found = decide(Case(grown, memory, (PoolLimits("prefill", 1, 8),), RULES, LONG_S + 5))
    assert found.stand is Stand.RESTING


def test_a_held_worker_keeps_its_pool_from_shrinking_and_calm_begins_after_it() -> None:
    held = sight(0.0, pool(wanted=3), held=1)
    assert "1 of its workers held (cordoned or drained)" in verdict(held, 900).why
    memory = seen_for(900, held).after(sight(0.0, pool(wanted=3)), RULES, LONG_S + 5)
    free = decide(Case(sight(0.0, pool(wanted=3)), memory, LIMITS, RULES, LONG_S + 5))
    assert free.stand is Stand.WATCHED


def test_a_pool_that_stays_since_a_worker_is_not_seen_says_so() -> None:
    found = verdict(sight(0.7, FULL_AND_ONE, num_seen=8), 0)
    assert found.why.startswith("prefill has 9 and may have 8 at most, and none is taken")
    assert found.why.endswith("while routers know 8 of 9 ready workers")
    low = verdict(sight(0.1, num_seen=1), 900).why
    assert low.endswith("while routers know 1 of 2 ready workers") and "target" in low


def test_of_two_pools_of_a_role_the_first_grows_first_and_the_last_shrinks_first() -> None:
    limits = (PoolLimits("h200", 1, 3), PoolLimits("h100", 1, 4))
    found = verdict(sight(1.5, pool("h100", 2), pool("h200", 2)), 30, limits)
    assert (found.pool, found.size) == ("h200", 3)
    found = verdict(sight(1.5, pool("h100", 2), pool("h200", 3)), 30, limits)
    assert (found.pool, found.size) == ("h100", 4)
    found = verdict(sight(0.0, pool("h100", 2), pool("h200", 3)), 600, limits)
    assert (found.pool, found.size) == ("h100", 1)
    found = verdict(sight(0.0, pool("h100", 1), pool("h200", 3)), 600, limits)
    assert (found.pool, found.size) == ("h200", 2)


def test_a_pool_whose_workers_never_come_is_passed_over_after_its_time() -> None:
    limits = (PoolLimits("h200", 1, 4), PoolLimits("h100", 1, 4))
    stuck = sight(1.5, pool("h100", 2), pool("h200", 3, ready=2))
    assert verdict(stuck, 500, limits).stand is Stand.CHANGING
    found = verdict(stuck, 650, limits)
    assert (found.pool, found.size) == ("h100", 4)


def test_where_one_worker_never_comes_its_pool_grows_beyond_it_so_far() -> None:
    alone = sight(1.5, pool(wanted=3, ready=2))
    assert verdict(alone, 500).stand is Stand.CHANGING
    found = verdict(alone, 650)
    assert (found.stand, found.size) == (Stand.GROWS, 5)
    assert "2 of 3 workers are ready after 600 s" in found.why
    many = verdict(sight(1.5, pool(wanted=6, ready=2)), 650)
    assert (many.stand, many.pool) == (Stand.CHANGING, "")  # four are absent: no more at once
    nobody = verdict(sight(1.5, pool(wanted=3, ready=0)), 650)
    assert (nobody.stand, nobody.pool) == (Stand.CHANGING, "")


def test_a_calm_pool_gives_up_the_worker_that_never_comes() -> None:
    stuck = sight(0.1, pool(wanted=16, ready=15))
    limits = (PoolLimits("prefill", 1, 16),)
    assert verdict(stuck, 590, limits).stand is Stand.CHANGING
    found = verdict(stuck, 650, limits)
    assert (found.stand, found.size) == (Stand.SHRINKS, 15)
    two = sight(0.1, pool("h200", 4, ready=3), pool("h100", 4))
    both = (PoolLimits("h200", 1, 8), PoolLimits("h100", 1, 8))
    assert verdict(two, 650, both).pool == "h200"


def test_a_planner_that_has_seen_nothing_for_a_while_begins_anew() -> None:
    memory = seen_for(600, sight(0.1))
    assert memory.calm_since_s is not None
    later_s = LONG_S + 4 * RULES.look_interval_s
    assert memory.after(sight(0.1), RULES, later_s).calm_since_s == later_s
    soon_s = LONG_S + 2 * RULES.look_interval_s
    assert memory.after(sight(0.1), RULES, soon_s).calm_since_s == memory.calm_since_s


def test_a_pool_without_workers_is_not_divided_by() -> None:
    empty = PoolState(name="prefill", num_wanted=1, num_present=1, num_ready=0, generation=1)
    found = verdict(sight(5.0, empty), 700)
    assert found.stand is Stand.CHANGING
    assert "0 of 1 workers are ready" in found.why


def test_why_has_the_pressure_in_words() -> None:
    assert "prompts wait 2.00 of the TTFT budget" in verdict(sight(2.0), 60).why
    steps = verdict(sight(2.0, signal="inter_token"), 60).why
    assert "decode steps take 2.00 of the ITL budget" in steps
    assert "(target 0.7)" in steps
    assert "unheard" in verdict(sight(2.0, signal="unheard"), 60).why


def test_a_pool_that_somebody_has_made_too_small_is_its_least_again_at_once() -> None:
    limits = (PoolLimits("prefill", 3, 8),)
    memory = seen_for(60, sight(0.5, pool(wanted=3)))
    small = sight(0.5, pool(wanted=1))
    memory = memory.after(small, RULES, LONG_S + 5)
    found = decide(Case(small, memory, limits, RULES, LONG_S + 5))
    assert (found.stand, found.size) == (Stand.GROWS, 3)
    refused = decide(Case(small, memory.tried(LONG_S + 5), limits, RULES, LONG_S + 10))
    assert refused.pool == ""


def test_a_pressure_that_falls_fast_enough_is_waited_for() -> None:
    memory = seen_for(60, sight(4.0))
    for turn, ratio in enumerate((3.0, 2.0), start=1):
        memory = memory.after(sight(ratio), RULES, LONG_S + turn * RULES.look_interval_s)
    case = Case(sight(2.0), memory, (PoolLimits("prefill", 1, 8),), RULES, LONG_S + 10)
    assert decide(case).stand is Stand.WATCHED
    slowly = seen_for(60, sight(4.0)).after(sight(3.9), RULES, LONG_S + 5)
    case = Case(sight(3.9), slowly, (PoolLimits("prefill", 1, 8),), RULES, LONG_S + 5)
    assert decide(case).stand is Stand.GROWS


def test_memory_of_nothing_is_settled_by_the_first_look() -> None:
    assert Memory().after(sight(0.5), RULES, 7.0).standing_since_s == 7.0
