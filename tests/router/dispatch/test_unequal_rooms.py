"""A fleet of workers that can hold requests of different lengths."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from cluster.errors import ContextTooLong, InternalError
from cluster.generation import BegunChoice
from cluster.identity import Role
from cluster.membership.member import MemberState
from cluster.sampling import SamplingParams
from router.control.plane import FleetPlane
from router.dispatch.room import USUAL_ANSWER_TOKENS, with_room
from router.dispatch.stream import Completed, RoutedRequest
from router.fleet.member import FleetMember
from tests.router.dispatch_bench import PROMPT, collect, request, router, time_limits
from tests.router.fake_decode_worker import FakeDecodeWorker, until


@asynccontextmanager
async def broken_big_beside_small() -> AsyncIterator[tuple[FleetPlane, FakeDecodeWorker]]:
    """Rooms for 1000 tokens and for 500."""
    big = FakeDecodeWorker("big", fails_with="internal_error")
    small = FakeDecodeWorker("small", answer_at_once=True)
    async with big, small, router() as plane:
        for worker, room in ((big, 1000), (small, 500)):
            await plane.store.join(worker.member(max_context_tokens=room))
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 2)
        yield plane, small


def as_long_as_may_be(room: int = 1000) -> RoutedRequest:
    return structs.replace(request(max_tokens=room - len(PROMPT)), is_default_length=True)


def holder(max_context_tokens: int) -> FleetMember:
    member = FakeDecodeWorker().member(max_context_tokens=max_context_tokens)
    return FleetMember(MemberState.joined(member, 0.0))


async def test_a_length_that_nobody_asked_for_is_cut_to_the_worker_that_is_left() -> None:
    async with broken_big_beside_small() as (plane, small):
        events = await collect(plane, as_long_as_may_be())
        assert isinstance(events[-1], Completed)
        [submit] = small.submitted
        assert submit.sampling.max_tokens == 500 - len(PROMPT)


async def test_a_length_that_was_asked_for_fails_with_the_error_of_the_worker_that_had_room() -> (
    None
):
    async with broken_big_beside_small() as (plane, small):
        with pytest.raises(InternalError, match="as the test says"):
            await collect(plane, request(max_tokens=900))
        assert small.submitted == []


async def test_a_length_that_no_worker_has_is_still_refused_as_what_it_is() -> None:
    async with broken_big_beside_small() as (plane, _):
        with pytest.raises(ContextTooLong, match="1009 tokens; the limit here is 1000"):
            await collect(plane, request(max_tokens=1000))


async def test_room_for_a_usual_answer_is_as_good_as_more() -> None:
    asked = as_long_as_may_be(100_000)
    usual, roomy = holder(len(PROMPT) + USUAL_ANSWER_TOKENS), holder(100_000)
    small, smaller = holder(500), holder(400)
    assert with_room([usual, roomy, small], asked) == [usual, roomy]
    assert with_room([small, smaller], asked) == [small]
    assert with_room([holder(len(PROMPT))], asked) == []
    least = SamplingParams(max_tokens=900, min_tokens=600)
    assert with_room([small], structs.replace(asked, sampling=least)) == []


async def test_an_answer_that_is_long_already_goes_on_where_a_usual_answer_still_fits() -> None:
    begun = [BegunChoice(0, [5] * (USUAL_ANSWER_TOKENS + 1000))]
    asked = as_long_as_may_be(30_000).going_on(begun, time_limits(30.0))
    small, roomy = holder(asked.num_known_tokens + 1), holder(30_000)
    usual = holder(asked.num_known_tokens + USUAL_ANSWER_TOKENS)
    assert with_room([small, usual, roomy], asked) == [usual, roomy]
    assert with_room([small], asked) == [small]
