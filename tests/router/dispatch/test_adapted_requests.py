"""Requests for adapters go where their very version is, and nowhere else."""

import asyncio

import pytest
from msgspec import structs

from cluster.adapter import Adapter, LoadedAdapter
from cluster.block_hash import cache_root
from cluster.errors import NoWorker
from cluster.generation import EngineLoad
from cluster.membership.member import Member
from router.control.plane import FleetPlane
from router.dispatch.stream import RoutedRequest
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import PAIRING, prefill_member

ONE, NEWER, TWO = Adapter("one", "a" * 32), Adapter("one", "b" * 32), Adapter("two", "c" * 32)


async def tells(plane: FleetPlane, member: Member, *adapters: Adapter) -> None:
    """The worker's next beat."""
    told = tuple(LoadedAdapter(adapter, True) for adapter in adapters)
    assert await plane.store.beat(member.key, EngineLoad(), draining=False, adapters=told)


def adapted(adapter: Adapter, request_id: str = "r1", num_tokens: int = 9) -> RoutedRequest:
    return structs.replace(
        request(request_id), adapter=adapter, token_ids=list(range(1, num_tokens + 1))
    )


async def test_a_request_goes_to_the_worker_that_has_its_adapter() -> None:
    workers = [FakeDecodeWorker(f"decode-{at}", answer_at_once=True) for at in (1, 2)]
    async with router(*workers) as plane:
        await tells(plane, workers[1].member(), ONE)
        for turn in range(4):
            await collect(plane, adapted(ONE, f"r{turn}"))
        assert [len(worker.submitted) for worker in workers] == [0, 4]
        submit = workers[1].submitted[0]
        assert submit.adapter == ONE.digest
        assert submit.cache_root == cache_root(PAIRING.key, "", ONE.digest)
        assert submit.cache_root != cache_root(PAIRING.key)
        decision = plane.decisions.find("r0")
        assert decision is not None
        assert decision.notes == (
            f"computed by adapter one ({ONE.digest})",
            "decode-1 does not have that adapter",
        )


async def test_a_prefill_worker_without_the_adapter_is_not_proposed() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await tells(plane, worker.member(), ONE)
        for member in (prefill_member(), prefill_member("prefill-2")):
            await plane.store.join(member)
        await collect(plane, adapted(ONE, num_tokens=200))
        assert list(worker.submitted[0].prefill) == []
        await tells(plane, prefill_member("prefill-2"), ONE)
        other = structs.replace(adapted(ONE, "r2"), token_ids=list(range(1000, 1200)))
        await collect(plane, other)
        assert [target.worker_id for target in worker.submitted[1].prefill] == ["prefill-2"]


async def test_where_nobody_has_it_no_worker_gets_the_request() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await tells(plane, worker.member(), TWO)
        with pytest.raises(NoWorker):
            await collect(plane, adapted(ONE))
        assert worker.submitted == []


async def test_requests_are_counted_by_the_name_of_their_adapter_and_how_they_ended() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await tells(plane, worker.member(), ONE)
        for turn in range(2):
            await collect(plane, adapted(ONE, f"r{turn}"))
        await collect(plane, request("plain"))
        worker.answer_at_once = False
        left = asyncio.create_task(collect(plane, adapted(ONE, "left")))
        await until(lambda: len(worker.submitted) == 4)
        left.cancel()
        await asyncio.wait([left])
        with pytest.raises(NoWorker):
            await collect(plane, adapted(TWO, "nowhere"))

        def counted(adapter: str, outcome: str) -> float | None:
            labels = {"adapter": adapter, "outcome": outcome}
            return plane.registry.get_sample_value("splitserve_adapter_requests_total", labels)

        assert counted("one", "ok") == 2
        assert counted("one", "cancelled") == 1
        assert counted("two", "failed") == 1
        assert counted("two", "ok") is None


async def test_a_name_stands_for_what_most_workers_have_of_equals_for_the_newer() -> None:
    workers = [FakeDecodeWorker(f"decode-{at}") for at in (1, 2, 3)]
    async with router(*workers) as plane:
        adapters, members = plane.adapters, [worker.member() for worker in workers]
        assert adapters.find("one") is None
        for member in members:
            await tells(plane, member, ONE, TWO)
        assert (adapters.find("one"), adapters.all()) == (ONE, [ONE, TWO])
        await tells(plane, members[0], NEWER, TWO)
        assert adapters.find("one") == ONE
        await tells(plane, members[1], NEWER)
        assert adapters.find("one") == NEWER
        await tells(plane, members[2], TWO)
        await tells(plane, members[1], ONE)
        assert adapters.find("one") == NEWER
        for member in members:
            await tells(plane, member)
        assert (adapters.find("one"), adapters.all()) == (None, [])


async def test_workers_that_drain_offer_nothing() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        await tells(plane, worker.member(), ONE)
        assert plane.adapters.find("one") == ONE
        await plane.store.beat(
            worker.member().key,
            EngineLoad(),
            draining=True,
            adapters=(LoadedAdapter(ONE, True),),
        )
        assert plane.adapters.find("one") is None
