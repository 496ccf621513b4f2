"""Workers without KV events: what they have cached is guessed from what they served."""

import asyncio

import pytest
from msgspec import structs

from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from router.control.plane import FleetPlane
from router.fleet.guessed_cache import GuessedCache
from router.index.invariants import check_invariants
from tests.router.dispatch_bench import PROMPT, collect, found, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until
from tests.router.planes import prefill_member

KEY = WorkerKey("decode-1", "i1")


def room(plane: FleetPlane, num_blocks: int) -> None:
    plane.store.report(KEY, EngineLoad(total_blocks=num_blocks))


def test_what_was_written_since_is_at_most_what_there_is_room_for() -> None:
    given_up: list[int] = []
    cache = GuessedCache(lambda: given_up.append(1))
    for _ in range(5):
        cache.wrote(2, room_blocks=10)
    assert not given_up
    cache.wrote(1, room_blocks=10)
    assert len(given_up) == 1
    cache.wrote(10, room_blocks=10)
    assert len(given_up) == 1


async def test_the_next_request_finds_what_the_one_before_has_left() -> None:
    first, second = (FakeDecodeWorker(name, answer_at_once=True) for name in ("one", "two"))
    async with router(first, second) as plane:
        await collect(plane, request("r1"))
        served = {worker.worker_id for worker in (first, second) if worker.submitted}
        assert set(found(plane, request("r1"))) == served
        await collect(plane, structs.replace(request("r2"), token_ids=PROMPT))
        assert {len(first.submitted), len(second.submitted)} == {0, 2}, "it went elsewhere"


async def test_no_guess_outlives_as_many_blocks_as_the_worker_has_room_for() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        room(plane, 6)
        for name in ("r1", "r2"):  # three blocks each, the answer's among them
            await collect(plane, request(name))
        assert plane.index.num_blocks_of(KEY) == 4
        await collect(plane, request("r3"))
        assert found(plane, request("r1")) == found(plane, request("r2")) == {}
        assert found(plane, request("r3")) == {"decode-1": 2}, "the newest is there"
        await until(lambda: plane.index.num_blocks == 2)
        check_invariants(plane.index.trees[0])


async def test_an_answer_displaces_what_was_there_as_a_prompt_does() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        room(plane, 20)
        await collect(plane, request("r1"))
        await collect(plane, request("r2", max_tokens=70))
        assert found(plane, request("r1")) == {}


async def test_what_a_worker_had_already_displaces_nothing() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"cached": 8}
    async with router(worker) as plane:
        room(plane, 6)
        for number in range(4):  # a block each after the first
            await collect(plane, structs.replace(request(f"r{number}"), token_ids=PROMPT))
        assert found(plane, request("r1")) == {"decode-1": 2}


async def test_requests_that_wait_for_a_small_worker_give_nothing_up() -> None:
    """What is still to come is not there yet: it counts when it is over."""
    worker = FakeDecodeWorker()
    async with router(worker, reserve_room=False) as plane:
        room(plane, 6)
        names = [f"r{number}" for number in range(5)]
        asked = [asyncio.create_task(collect(plane, request(name))) for name in names]
        await until(lambda: len(worker.submitted) == 5)
        room(plane, 6)
        assert plane.index.num_blocks_of(KEY) == 10
        assert not plane.index.needs_sweep
        for name in names:
            worker.send(tokens_frame(name, 5, 6, last=True))
            worker.send(ended_frame(name, prompt=9, made=2))
        await asyncio.gather(*asked)


async def test_a_worker_that_has_not_said_how_much_it_holds_holds_one_longest_request() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await collect(plane, request("r1"))
        await collect(plane, request("long", max_tokens=980))
        assert found(plane, request("r1")) == {}
        assert found(plane, request("long")) == {"decode-1": 2}


async def test_a_worker_that_was_restarted_has_nothing() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await collect(plane, request("r1"))
        assert found(plane, request("r1")) == {"decode-1": 2}
        await plane.store.join(worker.member(incarnation="i2"))
        assert found(plane, request("r1")) == {}
        await until(lambda: plane.index.num_blocks == 0)


@pytest.mark.parametrize("has_events", [False, True])
async def test_a_worker_that_keeps_no_prefixes_is_never_believed_to_have_any(
    has_events: bool,
) -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with worker, router() as plane:
        pub, replay = await worker.start_events() if has_events else ("", "")
        member = worker.member(
            prefix_cache_off=True, kv_events_address=pub, kv_replay_address=replay
        )
        await plane.store.join(member)
        await plane.store.join(prefill_member(prefix_cache_off=True))
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 1)
        await collect(plane, request("r1"))
        await collect(plane, structs.replace(request("r2"), token_ids=PROMPT))
        assert found(plane, request("r1")) == {}
        assert plane.index.num_blocks == 0
