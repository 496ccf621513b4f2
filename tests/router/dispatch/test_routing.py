"""What the desk adds to the pure policy."""

from dataclasses import replace
from random import Random

from msgspec import structs

from cluster.block_hash import cache_root
from cluster.identity import Role
from router.dispatch.routing import RoutingDesk
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import PAIRING, prefill_member


async def test_routers_that_start_together_do_not_all_begin_with_the_same_of_equal_workers() -> (
    None
):
    async with router(FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")) as plane:
        desks = [
            RoutingDesk(plane.fleet, PrefixIndex(10), Estimates(), Random(seed))
            for seed in range(20)
        ]
        firsts = [desk.decide(request(), frozenset()).route.decode.worker_id for desk in desks]
    assert 5 <= firsts.count("decode-1") <= 15


async def test_workers_of_unequal_blocks_pair_and_each_is_believed_to_have_its_own() -> None:
    """A prompt is named under one root by both, block by block of each one's size."""
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"prefill_worker": "prefill-1"}
    small, large = (replace(PAIRING, block_size_tokens=size) for size in (16, 64))
    async with router() as plane, worker:
        pub, replay = await worker.start_events()
        addresses = {"kv_events_address": pub, "kv_replay_address": replay}
        await plane.store.join(worker.member(pairing=large, **addresses))
        await plane.store.join(prefill_member(pairing=small, **addresses))
        await until(lambda: plane.fleet.why_not_ready() is None)
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 1)
        asked = structs.replace(request(), token_ids=list(range(200)))
        await collect(plane, asked)
        assert [target.worker_id for target in worker.submitted[0].prefill] == ["prefill-1"]
        assert worker.submitted[0].cache_root == cache_root(small.key) == cache_root(large.key)
        await collect(plane, structs.replace(asked, request_id="again"))
        view = plane.decisions.find("again").view
        assert [item.matched_tokens for item in view.prefill] == [192]
        assert [item.matched_tokens for item in view.decode] == [192]
        assert plane.fleet.mismatches == ()
        await plane.store.join(
            prefill_member("prefill-2", pairing=replace(PAIRING, block_size_tokens=12))
        )
        await until(lambda: len(plane.fleet.mismatches) == 1)
        assert "block_size_tokens is 12 there and 64 here" in plane.fleet.mismatches[0]
