"""Plans of placements: examples, and what holds for all loads."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from cluster.models.expert_placement import ExpertPlacement, in_runs
from cluster.models.expert_plan import group_loads, imbalance, plan_placement


@st.composite
def loaded_placements(draw: st.DrawFn) -> tuple[list[int], ExpertPlacement]:
    """Picks of a layer's experts, and a placement that may have been changed before."""
    num_experts = draw(st.integers(1, 12))
    num_groups = draw(st.integers(1, min(4, num_experts)))
    loads = draw(st.lists(st.integers(0, 50), min_size=num_experts, max_size=num_experts))
    groups = draw(st.permutations(in_runs(num_experts, num_groups).groups))
    return loads, in_runs(num_experts, num_groups).changed_to(groups)


def test_two_hot_neighbours_are_parted_by_one_exchange() -> None:
    plan = plan_placement([90, 80, 10, 20], in_runs(4, 2))
    assert plan is not None
    assert plan.num_moves == 2
    assert plan.placement.generation == 1
    assert (plan.imbalance_before, plan.imbalance_after) == (1.7, 1.0)


def test_an_even_layer_and_one_that_nobody_used_stay_as_they_are() -> None:
    assert plan_placement([5, 5, 5, 5], in_runs(4, 2)) is None
    assert plan_placement([0, 0, 0, 0], in_runs(4, 2)) is None


def test_one_expert_hotter_than_all_others_gets_the_lightest_company() -> None:
    plan = plan_placement([100, 9, 1, 8, 2, 3], in_runs(6, 2))
    assert plan is not None
    hot = plan.placement.groups[0]
    assert set(plan.placement.held_by(hot)) == {0, 2, 4}


def test_a_gain_that_is_not_worth_the_reading_is_left_alone() -> None:
    """An excess of a half: of it one exchange would take a fiftieth, the other a tenth."""
    assert plan_placement([1490, 20, 490, 10], in_runs(4, 2)) is None
    assert plan_placement([1490, 60, 440, 10], in_runs(4, 2)) is not None


def test_an_uneven_number_of_experts_may_move_without_another_in_return() -> None:
    plan = plan_placement([0, 0, 6, 6, 6], in_runs(5, 2))
    assert plan is not None
    assert sorted(group_loads([0, 0, 6, 6, 6], plan.placement)) == [6, 12]


def test_a_plan_moves_no_more_experts_than_it_may() -> None:
    loads = [60, 50, 40, 30, 4, 3, 2, 1]
    free = plan_placement(loads, in_runs(8, 2))
    bound = plan_placement(loads, in_runs(8, 2), max_moves=2)
    assert free is not None
    assert bound is not None
    assert bound.num_moves == 2 < free.num_moves
    assert bound.imbalance_after < bound.imbalance_before


@given(loaded_placements())
def test_a_plan_never_makes_the_busiest_group_busier(
    given_: tuple[list[int], ExpertPlacement],
) -> None:
    loads, placement = given_
    plan = plan_placement(loads, placement)
    if plan is None:
        return
    assert max(group_loads(loads, plan.placement)) < max(group_loads(loads, placement))
    assert plan.imbalance_before == imbalance(loads, placement)
    assert plan.imbalance_after == imbalance(loads, plan.placement) < plan.imbalance_before
    assert plan.num_moves == placement.num_moves(plan.placement) > 0
    assert plan.placement.generation == placement.generation + 1


@given(loaded_placements())
def test_after_a_plan_no_single_exchange_helps_further(
    given_: tuple[list[int], ExpertPlacement],
) -> None:
    loads, placement = given_
    plan = plan_placement(loads, placement)
    assert plan_placement(loads, placement if plan is None else plan.placement) is None


@given(loaded_placements())
def test_two_groups_end_no_worse_than_half_as_bad_again_as_the_best_of_all_placements(
    given_: tuple[list[int], ExpertPlacement],
) -> None:
    loads, placement = given_
    if placement.num_groups != 2 or placement.num_experts > 7:
        return
    plan = plan_placement(loads, placement)
    after = placement if plan is None else plan.placement
    best = min(
        max(group_loads(loads, placement.changed_to(groups)))
        for groups in set(permutations(placement.groups))
    )
    assert max(group_loads(loads, after)) <= 1.5 * best
