"""How many workers the pools of a release are to have."""

from __future__ import annotations

import pytest

from cluster.identity import Role
from cluster.scaling.scaler import PoolState, RefusalReason, ScaleRefused
from cluster.supervisor.release.goals import PoolGoal, goals_of


def pool(name: str, size: int, role: str = "", *, num_ready: int | None = None) -> PoolState:
    return PoolState(
        name=name,
        num_wanted=size,
        num_present=size,
        num_ready=size if num_ready is None else num_ready,
        generation=1,
        role=role,
    )


def sizes(pools: list[PoolState], said: dict[Role, int]) -> dict[str, int]:
    return {goal.pool: goal.size for goal in goals_of(pools, said)}


def test_pools_without_a_worker_get_one_and_others_stay_as_they_are() -> None:
    assert sizes([pool("prefill", 0), pool("decode", 5)], {}) == {"prefill": 1, "decode": 5}


def test_what_was_said_is_the_size_of_the_only_pool_of_that_role() -> None:
    pools = [pool("first", 1, "prefill"), pool("decode", 2)]
    assert sizes(pools, {Role.PREFILL: 3, Role.DECODE: 2}) == {"first": 3, "decode": 2}


def test_of_several_pools_of_a_role_those_without_workers_stay_so_while_one_has_some() -> None:
    pools = [pool("a", 0, "decode"), pool("b", 2, "decode")]
    assert sizes(pools, {}) == {"a": 0, "b": 2}
    assert sizes([pool("a", 0, "decode"), pool("b", 0, "decode")], {}) == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    ("pools", "reason", "words"),
    [
        ([pool("decode", 1)], RefusalReason.NO_SUCH_POOL, "it has decode"),
        (
            [pool("a", 1, "prefill"), pool("b", 1, "prefill")],
            RefusalReason.OPTIONS,
            "a, b are pools of prefill workers",
        ),
    ],
)
def test_a_role_that_no_pool_or_several_have_is_refused_with_their_names(
    pools: list[PoolState], reason: RefusalReason, words: str
) -> None:
    with pytest.raises(ScaleRefused, match=words) as refusal:
        goals_of(pools, {Role.PREFILL: 2})
    assert refusal.value.reason is reason


def test_a_pool_that_was_changed_is_met_when_it_is_settled_and_another_one_by_a_worker() -> None:
    changed = PoolGoal(pool="decode", size_before=1, size=2)
    assert not changed.is_met_by(pool("decode", 2, num_ready=1))
    assert changed.is_met_by(pool("decode", 2))
    assert changed.is_met_by(pool("decode", 5)), "somebody else's size is none to wait for"
    left = PoolGoal(pool="decode", size_before=2, size=2)
    assert left.is_met_by(pool("decode", 2, num_ready=1))
    assert not left.is_met_by(pool("decode", 2, num_ready=0))
