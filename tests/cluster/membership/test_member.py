"""What a worker says of itself when it joins, over the wire and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.errors import InvalidRequest
from cluster.membership.member import Member, member_from_wire, member_to_wire
from cluster.rank_facts import RankFacts
from tests.cluster.membership.test_memory import member

RANKS = tuple(
    RankFacts(
        rank=rank,
        pid=100 + rank,
        node=f"node-{rank}",
        device="cpu",
        generation=7,
        kv_heads=(rank, rank + 1),
        weight_bytes=10,
        kv_bytes=20,
        peak_bytes=40,
        loaded_as="int4, columns by 32",
    )
    for rank in range(2)
)


def in_ranks(ranks: tuple[RankFacts, ...]) -> Member:
    return replace(member(), ranks=ranks)


def test_a_member_of_several_ranks_is_the_same_on_the_other_side() -> None:
    told = in_ranks(RANKS)
    assert member_from_wire(member_to_wire(told)) == told


def test_what_a_rank_says_of_its_form_has_a_limit() -> None:
    told = member_to_wire(in_ranks((replace(RANKS[0], loaded_as="x" * 10_000),)))
    with pytest.raises(InvalidRequest, match="ranks.loaded_as has 10000 characters"):
        member_from_wire(told)


def test_a_worker_that_knows_of_no_draws_has_the_first() -> None:
    told = member_to_wire(replace(member(), draws=3))
    assert member_from_wire(told).draws == 3
    told.ClearField("draws")
    assert member_from_wire(told).draws == 0
