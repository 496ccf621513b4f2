"""What other routers have given a worker counts in its price here."""

from random import Random

from router.dispatch.routing import RoutingDesk
from router.fleet.request_share import GivenElsewhere
from router.pricing.estimates import Estimates
from tests.router.dispatch_bench import request, router
from tests.router.fake_decode_worker import FakeDecodeWorker


def chosen(desk: RoutingDesk) -> set[str]:
    return {desk.decide(request(), frozenset()).route.decode.worker_id for _ in range(20)}


async def test_a_worker_that_others_have_sent_prompts_to_costs_as_much_more() -> None:
    async with router(FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")) as plane:
        desk = plane.desk
        assert chosen(desk) == {"decode-1", "decode-2"}
        first, second = plane.fleet.members
        first.elsewhere = GivenElsewhere(1, 3000, 3000, 1)
        assert chosen(desk) == {second.key.worker_id}
        view = desk.decide(request(), frozenset()).view
        waiting = {item.key: item.waiting_tokens for item in view.decode}
        assert waiting == {first.key: 3000, second.key: 0}


async def test_a_worker_that_has_said_so_itself_is_not_charged_twice() -> None:
    async with router(FakeDecodeWorker("decode-1")) as plane:
        [item] = plane.fleet.members
        item.elsewhere = GivenElsewhere(2, 3000, 1000, 1)
        said = item.load.__class__(waiting_prefill_tokens=1200, waiting_prompts=2, num_running=3)
        plane.store.report(item.key, said)
        [view] = plane.desk.decide(request(), frozenset()).view.decode
        assert (view.waiting_tokens, view.waiting_prompts, view.num_running) == (1200, 2, 3)


async def test_a_request_is_among_what_a_worker_was_given_until_it_ends() -> None:
    async with router(FakeDecodeWorker("decode-1")) as plane:
        [item] = plane.fleet.members
        share = item.assign("r1", num_tokens=100, prefill_tokens=60)
        again = item.assign("r1", num_tokens=100, prefill_tokens=20)
        share.release()
        assert {key: given.asked for key, given in item.given.items()} == {"r1": again.asked}
        again.prefilled()
        assert (again.asked.num_tokens, again.asked.prefill_tokens) == (100, 0)
        again.release()
        assert item.given == {}


async def test_routers_that_know_nothing_of_each_other_do_not_choose_one_worker_together() -> None:
    """Each sees the fleet as idle for as long as no worker has said anything: 2 routers, 200
    requests of each."""
    names = [f"decode-{number}" for number in range(4)]
    async with router(*map(FakeDecodeWorker, names)) as plane:
        desks = [
            RoutingDesk(plane.fleet, plane.index, Estimates(), Random(seed)) for seed in (1, 2)
        ]
        chosen_ids = [
            [desk.decide(request(), frozenset()).route.decode.worker_id for desk in desks]
            for _ in range(200)
        ]
    num_together = sum(first == second for first, second in chosen_ids)
    assert 25 <= num_together <= 80  # 50 of 200 by chance
    for name in names:
        assert 60 <= sum(ids.count(name) for ids in chosen_ids) <= 140
