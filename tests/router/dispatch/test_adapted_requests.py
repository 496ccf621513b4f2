"""Requests for adapters go where their very version is, and nowhere else."""

import asyncio
from unittest.mock import Mock

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from cluster.adapter import Adapter, OfferedAdapter
from cluster.block_hash import cache_root
from cluster.errors import NoWorker
from cluster.generation import EngineLoad
from cluster.identity import Role, owner_of
from cluster.membership.member import Member
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.first_part import FirstPart
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest
from router.fleet import fleet
from router.fleet.fleet_adapters import REMEMBERED_S, FleetAdapters
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)
from tests.router.planes import PAIRING, prefill_member, running_plane

ONE, NEWER, TWO = Adapter("one", "a" * 32), Adapter("one", "b" * 32), Adapter("two", "c" * 32)


async def tells(plane: FleetPlane, member: Member, *adapters: Adapter) -> None:
    """The worker's next beat."""
    told = tuple(OfferedAdapter(adapter, True) for adapter in adapters)
    assert await plane.store.beat(member.key, EngineLoad(), draining=False, adapters=told)


async def drains(plane: FleetPlane, member: Member, adapter: Adapter) -> None:
    told = (OfferedAdapter(adapter, True),)
    await plane.store.beat(member.key, EngineLoad(), draining=True, adapters=told)


async def read_into(told: list[object], plane: FleetPlane, asked: RoutedRequest) -> None:
    async for event in plane.source.generate(asked):
        if isinstance(event, ChoiceTokens):
            told.append(event)


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


async def test_workers_are_told_whose_a_request_for_an_adapter_is() -> None:
    """And of others nothing, nor the tenant's name."""
    worker = FakeDecodeWorker("decode-1", answer_at_once=True)
    async with router(worker) as plane:
        await tells(plane, worker.member(), ONE)
        await collect(plane, structs.replace(adapted(ONE, "r1"), tenant="acme"))
        await collect(plane, structs.replace(request("r2"), tenant="acme"))
    assert [submit.owner for submit in worker.submitted] == [owner_of("acme"), b""]
    assert b"acme" not in owner_of("acme")


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
        assert plane.adapters.offered("one") == ONE
        await drains(plane, worker.member(), ONE)
        assert plane.adapters.offered("one") is None


async def test_what_waits_in_the_line_while_its_name_gets_new_weights_is_sent_with_these() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1) as plane:
        await tells(plane, worker.member(), ONE)
        running = asyncio.create_task(collect(plane, adapted(ONE, "r1")))
        await until(lambda: len(worker.submitted) == 1)
        keeper = Mock()
        asked = structs.replace(adapted(ONE, "r2"), keeper=keeper)
        waiting = asyncio.create_task(collect(plane, asked))
        await until(lambda: plane.admission.num_queued == 1)
        await tells(plane, worker.member(), NEWER)
        worker.answer_at_once = True
        worker.send(tokens_frame("r1", 5, last=True))
        worker.send(ended_frame("r1"))
        await running
        end = (await waiting)[-1]
        assert isinstance(end, Completed) and end.adapter_digest == NEWER.digest
        assert [each.adapter for each in worker.submitted] == [ONE.digest, NEWER.digest]
        assert worker.submitted[1].cache_root == cache_root(PAIRING.key, "", NEWER.digest)
        keeper.begun.assert_called_once_with(FirstPart(PAIRING.key, 0, NEWER.digest), 2)


async def test_what_has_begun_keeps_its_version_at_other_workers_and_connections() -> None:
    workers = [FakeDecodeWorker(f"decode-{at}") for at in (1, 2)]
    async with router(*workers) as plane:
        await tells(plane, workers[0].member(), ONE)
        told: list[object] = []
        answering = asyncio.create_task(read_into(told, plane, adapted(ONE, "r1")))
        await until(lambda: len(workers[0].submitted) == 1)
        workers[0].send(tokens_frame("r1", 5))
        await until(lambda: len(told) == 1)
        await tells(plane, workers[1].member(), ONE, NEWER)
        await tells(plane, workers[0].member(), NEWER)
        workers[1].answer_at_once = True
        workers[0].send(error_frame("r1", "internal", "broken"))
        await answering
        assert [each.adapter for each in workers[1].submitted] == [ONE.digest]
        part = FirstPart(PAIRING.key, 0, ONE.digest)
        await collect(plane, structs.replace(adapted(ONE, "r2"), first_part=part))
        assert [each.adapter for each in workers[1].submitted] == [ONE.digest] * 2


async def test_a_name_whose_only_worker_starts_anew_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 60.0)
    worker, again = FakeDecodeWorker(), FakeDecodeWorker("decode-2", answer_at_once=True)
    async with router(worker) as plane, again:
        await tells(plane, worker.member(), ONE)
        assert plane.adapters.all() == [ONE]
        await plane.store.leave(worker.member().key)
        assert (plane.adapters.find("one"), plane.adapters.all()) == (ONE, [ONE])
        answering = asyncio.create_task(collect(plane, adapted(ONE)))
        await plane.store.join(again.member())
        await until(lambda: bool(plane.fleet.ready(Role.DECODE)))
        assert plane.adapters.find("one") == ONE
        await tells(plane, again.member(), NEWER)
        assert isinstance((await answering)[-1], Completed)
        assert [each.adapter for each in again.submitted] == [NEWER.digest]


async def test_no_adapter_of_a_worker_gets_the_name_of_the_model_itself() -> None:
    """From a folder of that name, or of a worker that knows no better; under another router's name
    for the model it is one."""
    worker, prod = FakeDecodeWorker(), Adapter("prod", "d" * 32)
    async with router(worker) as plane:
        here = FleetAdapters(plane.fleet, lambda: 0.0, model_name="prod")
        with capture_logs() as logs:
            for adapters in ((prod, ONE), (prod, ONE, TWO)):
                await tells(plane, worker.member(), *adapters)
                assert here.all() == list(adapters[1:])
                assert here.find("prod") is here.offered("prod") is None
        assert [line["name"] for line in logs if "name of the model" in line["event"]] == ["prod"]
        assert plane.adapters.all() == [ONE, prod, TWO]
        await plane.store.leave(worker.member().key)
        assert here.all() == [ONE, TWO]


async def test_a_router_knows_its_own_name_for_the_model() -> None:
    worker = FakeDecodeWorker()
    async with running_plane(OwnModel(name="one")) as plane, worker:
        await plane.store.join(worker.member())
        await until(lambda: bool(plane.fleet.ready(Role.DECODE)))
        await tells(plane, worker.member(), ONE, TWO)
        assert plane.adapters.all() == [TWO]


async def test_a_name_whose_workers_have_left_is_forgotten_later_or_once_withdrawn() -> None:
    now_s = 0.0
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        adapters = FleetAdapters(plane.fleet, lambda: now_s)
        await tells(plane, worker.member(), ONE, TWO)
        assert len(adapters.all()) == 2
        await drains(plane, worker.member(), ONE)
        assert adapters.all() == [ONE, TWO]
        await tells(plane, worker.member(), ONE)
        assert (adapters.find("one"), adapters.find("two")) == (ONE, TWO)
        await tells(plane, worker.member())
        assert (adapters.find("one"), adapters.find("two")) == (None, TWO)
        now_s = REMEMBERED_S
        assert adapters.all() == []
