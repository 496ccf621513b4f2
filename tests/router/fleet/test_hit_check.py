"""A worker whose cache is not what the index believes is trusted less, then asked."""

import asyncio
from dataclasses import replace

from msgspec import structs

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CachedBlock
from cluster.generation import EngineLoad
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest
from router.fleet.hit_trust import GOOD_SHARE, HitTrust
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until
from tests.router.planes import PAIRING

SIZE = PAIRING.block_size_tokens
NUM_BLOCKS = 200
PREFIX = list(range(NUM_BLOCKS * SIZE))


def test_a_worker_is_believed_as_it_is_until_it_is_wrong_more_than_once() -> None:
    trust = HitTrust()
    for _ in range(20):
        trust.compared(1024, 1024)
    assert trust.share == 1.0
    trust.compared(1024, 0)
    assert trust.share == 1.0 and not trust.believes_too_much
    for _ in range(4):
        trust.compared(1024, 0)
    assert trust.share < GOOD_SHARE


def test_one_that_was_never_right_is_doubtful_after_a_few_prompts_and_not_after_one() -> None:
    trust = HitTrust()
    trust.compared(1024, 0)
    assert not trust.believes_too_much
    for _ in range(4):
        trust.compared(1024, 0)
    assert trust.believes_too_much and not trust.knows_too_little


def test_one_that_has_what_nobody_expected_is_doubtful_and_loses_no_trust() -> None:
    trust = HitTrust()
    for _ in range(8):
        trust.compared(0, 1024)
    assert trust.knows_too_little and trust.share == 1.0


def test_prompts_that_are_new_say_nothing_and_a_last_block_that_is_computed_is_no_error() -> None:
    trust = HitTrust()
    for _ in range(50):
        trust.compared(0, 0)
        trust.compared(1024, 960)
    assert trust.share == 1.0
    assert not trust.believes_too_much and not trust.knows_too_little


def test_trust_comes_back_with_beliefs_that_come_true() -> None:
    trust = HitTrust()
    for _ in range(4):
        trust.compared(1024, 0)
    assert trust.share < 1.0
    for _ in range(12):
        trust.compared(1024, 1024)
    assert trust.share == 1.0


def _asked(number: int) -> RoutedRequest:
    """One prefix for all, and a token of its own."""
    return structs.replace(request(f"r{number}"), token_ids=[*PREFIX, 90_000 + number])


def _prefix_blocks() -> list[CachedBlock]:
    root = cache_root(PAIRING.key)
    names = chain_names(pack_tokens(PREFIX), parent=root, block_size_tokens=SIZE)
    parents = [None, *names]
    return [
        CachedBlock(name, parents[i], PREFIX[i * SIZE : (i + 1) * SIZE])
        for i, name in enumerate(names)
    ]


def _share(plane: FleetPlane) -> float:
    return plane.fleet.members[0].hits.share


async def test_a_worker_that_has_dropped_its_blocks_unsaid_is_asked_and_then_believed() -> None:
    """Every prompt finds nothing there, until the snapshot has said so as well."""
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.live = _prefix_blocks()
    async with router() as plane, worker:
        pub, replay = await worker.start_events()
        address = {"kv_events_address": pub, "kv_replay_address": replay}
        await plane.store.join(worker.member(**address))
        await until(lambda: plane.why_not_ready() is None and plane.index.num_blocks == NUM_BLOCKS)
        worker.live = []
        for number in range(2):
            await collect(plane, _asked(number))
        assert _share(plane) < 1.0
        decision = plane.source._desk.decide(_asked(99), frozenset())
        seen = decision.view.decode[0]
        assert seen.matched_tokens == len(PREFIX) and seen.trusted_tokens < len(PREFIX)
        number = 2
        while _doubts(plane) == 0:
            await collect(plane, _asked(number))
            number += 1
            assert number < 10
        await until(lambda: plane.index.num_blocks == 0)
        assert _share(plane) == 1.0


async def test_a_cache_that_its_link_doubts_is_learned_anew_at_once() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.live = _prefix_blocks()
    async with router() as plane, worker:
        pub, replay = await worker.start_events()
        address = {"kv_events_address": pub, "kv_replay_address": replay}
        await plane.store.join(worker.member(**address))
        await until(lambda: plane.why_not_ready() is None and plane.index.num_blocks == NUM_BLOCKS)
        worker.live = []
        (member,) = plane.fleet.members
        assert member.standstill is not None
        plane.fleet._events_of(member.key, member.standstill).on_doubt()
        await until(lambda: plane.index.num_blocks == 0)
        assert _doubts(plane) == 1


async def test_it_is_not_asked_again_at_once() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router() as plane, worker:
        pub, replay = await worker.start_events()
        address = {"kv_events_address": pub, "kv_replay_address": replay}
        await plane.store.join(worker.member(**address))
        await until(lambda: plane.why_not_ready() is None)
        for number in range(30):  # it says that it has nothing, and the index believes its answers
            await collect(plane, _asked(number))
            await asyncio.sleep(0)
        assert _doubts(plane) == 1


async def test_one_whose_ranks_have_caches_of_their_own_is_trusted_less_and_not_asked() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router() as plane, worker:
        await plane.store.join(worker.member())
        await until(lambda: plane.why_not_ready() is None)
        (member,) = plane.fleet.members
        member.state = replace(member.state, load=EngineLoad(home_blocks_left=(9, 9)))
        for _ in range(10):
            plane.fleet.hits.compared(member.key, expected_tokens=1024, found_tokens=0)
        assert member.hits.believes_too_much and member.hits.share < GOOD_SHARE
        assert _doubts(plane) == 0
        member.state = replace(member.state, load=EngineLoad())
        plane.fleet.hits.compared(member.key, expected_tokens=1024, found_tokens=0)
        assert _doubts(plane) == 1


def _doubts(plane: FleetPlane) -> float:
    return plane.registry.get_sample_value("splitserve_prefix_doubts_total") or 0.0


async def test_one_without_events_is_believed_whatever_others_have_had_it_compute() -> None:
    """Another router's prompts are in its cache as well; nobody tells this one of them."""
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        for number in range(12):
            asked = asyncio.create_task(collect(plane, _asked(number)))
            await until(lambda number=number: len(worker.submitted) == number + 1)
            worker.send(tokens_frame(f"r{number}", 5, 6, last=True))
            worker.send(ended_frame(f"r{number}", prompt=len(PREFIX) + 1, made=2, cached=796))
            await asked
            plane.fleet.members[0].guesses.wrote(10_000, room_blocks=1)  # it forgets each
        assert plane.fleet.members[0].hits.knows_too_little
        assert _doubts(plane) == 0
