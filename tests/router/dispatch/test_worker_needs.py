"""Whom a request may not be sent to for what they are."""

from unittest.mock import Mock

import pytest
from msgspec import structs

from cluster.adapter import Adapter
from cluster.identity import Role, WorkerKey
from router.dispatch.first_part import FirstPart
from router.dispatch.routing import _why_none
from router.dispatch.worker_needs import WorkerNeeds
from tests.router.dispatch_bench import request
from tests.router.planes import PAIRING, member_of, running_plane


async def test_who_draws_other_tokens_computes_no_prompt_before_those_that_are_made_again() -> None:
    """A prefill worker draws the first of them."""
    members = {
        (role, draws): member_of(role, f"{role}-{draws}", draws=draws)
        for role in Role
        for draws in (0, 1)
    }
    keeper = Mock(is_behind=True)
    asked = structs.replace(request(), first_part=FirstPart(PAIRING.key, 0, "", 1), keeper=keeper)
    sampling = structs.replace(asked.sampling, temperature=0.0)
    needs = WorkerNeeds.of(asked)
    greedy = WorkerNeeds.of(structs.replace(asked, sampling=sampling))
    async with running_plane() as plane:
        for member in members.values():
            await plane.store.join(member)

        def excluded(needs: WorkerNeeds) -> frozenset[WorkerKey]:
            return needs.excluded(plane.fleet, Role.DECODE)

        assert excluded(needs) == {members[role, 0].key for role in Role}
        assert excluded(greedy) == frozenset()
        keeper.is_behind = False
        assert excluded(needs) == frozenset()


@pytest.mark.parametrize("adapter", [None, Adapter("sql", "00")])
def test_that_none_draws_the_same_is_said_before_what_all_of_them_have(
    adapter: Adapter | None,
) -> None:
    keeper = Mock(is_behind=True)
    asked = structs.replace(request(), keeper=keeper, adapter=adapter)
    assert "try again later, or send the request anew" in _why_none(asked)
    keeper.is_behind = False
    assert ("has the adapter sql" in _why_none(asked)) == (adapter is not None)
