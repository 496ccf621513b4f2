"""Which group has which expert, and how a table changes."""

from __future__ import annotations

import pytest

from cluster.models.expert_placement import ExpertPlacement, in_runs


def test_a_model_is_loaded_with_runs_of_neighbours_as_even_as_they_go() -> None:
    placement = in_runs(7, 3)
    assert [placement.held_by(group) for group in range(3)] == [(0, 1), (2, 3), (4, 5, 6)]
    assert placement.generation == 0


def test_any_permutation_is_a_placement_of_the_next_generation() -> None:
    placement = in_runs(4, 2).changed_to([1, 0, 1, 0])
    assert (placement.held_by(0), placement.held_by(1)) == ((1, 3), (0, 2))
    assert placement.generation == 1
    assert placement.num_moves(in_runs(4, 2)) == 2


def test_a_group_with_two_experts_more_than_another_is_refused() -> None:
    with pytest.raises(ValueError, match=r"groups of \[3, 1\] experts"):
        ExpertPlacement(groups=(0, 0, 0, 1), num_groups=2)


def test_a_group_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"groups \[0, 1, 2\] where there are 2"):
        ExpertPlacement(groups=(0, 1, 2), num_groups=2)
