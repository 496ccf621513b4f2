"""What the desk adds to the pure policy."""

from random import Random

from router.dispatch.routing import RoutingDesk
from router.index.prefix_index import PrefixIndex
from router.pricing.estimates import Estimates
from tests.router.dispatch_bench import request, router
from tests.router.fake_decode_worker import FakeDecodeWorker


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
