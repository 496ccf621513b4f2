"""A worker that an operator drains or cordons: who goes on where, and who learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.hold import NO_HOLD, UNKNOWN_WORKER, HoldKind
from cluster.membership.member import member_to_wire
from cluster.membership.memory import MAX_MEMBERS
from cluster.rpc import open_channel
from protos import membership_pb2, membership_pb2_grpc
from router.control.hold_orders import LAST_WORKER, HoldOrders
from tests.router.fake_decode_worker import until
from tests.router.model_worker import ModelWorker, Trouble, says_nothing_more
from tests.router.planes import member_of, prefill_member, served_plane
from tests.router.streams_bench import KINDS, Bench, bench, undisturbed

HELD = Trouble(5, says_nothing_more)
Order = membership_pb2.HoldOrder


def orders_of(here: Bench) -> HoldOrders:
    return HoldOrders(here.plane.fleet, here.plane.index)


async def streaming(here: Bench, name: str) -> tuple[ModelWorker, asyncio.Task[object]]:
    """An answer that stands after five tokens, and who has it."""
    asked = asyncio.create_task(here.ask(name, KINDS["one choice"], HELD))
    evacuation = here.plane.source._evacuation
    before = evacuation.num_staying
    await until(lambda: evacuation.num_staying == before + 1)
    return here.holder_of(name), asked  # type: ignore[return-value]


def state_of(here: Bench, worker: ModelWorker) -> str:
    item = here.plane.fleet.find(worker.member().key)
    assert item is not None
    return here.plane.fleet.state_of(item)


async def test_the_streams_of_a_drained_worker_go_on_with_another_and_lose_nothing() -> None:
    async with bench(2) as here:
        _, whole = await undisturbed(here, "one choice")
        worker, asked = await streaming(here, "r1")
        order = Order(worker_id=worker.worker_id, kind=HoldKind.DRAIN)
        answer = orders_of(here).give(order)
        assert (answer.reason, answer.num_requests) == ("", 1)
        assert state_of(here, worker) in ("draining", "drained")
        assert await asked == whole
        assert here.continued("drained") == 1
        assert state_of(here, worker) == "drained"
        await here.ask("r2", KINDS["one choice"])
        assert here.holder_of("r2") is not worker


async def test_what_a_cordoned_worker_has_goes_on_there_and_nothing_new_comes() -> None:
    async with bench(2) as here:
        worker, asked = await streaming(here, "r1")
        orders_of(here).give(Order(worker_id=worker.worker_id, kind=HoldKind.CORDON))
        assert state_of(here, worker) == "cordoned"
        for name in ("r2", "r3", "r4"):
            await here.ask(name, KINDS["one choice"])
            assert here.holder_of(name) is not worker
        assert worker.cancelled == []
        [submit] = [each for each in worker.submitted if each.request_id == "r1"]
        for frame in [*worker.frames_of(submit)][HELD.after :]:
            worker.send(frame)
        await asked
        assert here.holder_of("r1") is worker


async def test_an_uncordoned_worker_gets_requests_again() -> None:
    async with bench(2) as here:
        orders = orders_of(here)
        held, other = here.workers
        orders.give(Order(worker_id=held.worker_id, kind=HoldKind.DRAIN))
        orders.give(Order(worker_id=held.worker_id, kind=HoldKind.NONE))
        orders.give(Order(worker_id=other.worker_id, kind=HoldKind.CORDON))
        await here.ask("r1", KINDS["one choice"])
        assert here.holder_of("r1") is held


async def test_a_trial_and_a_refusal_change_nothing() -> None:
    async with bench(1) as here:
        orders, [worker] = orders_of(here), here.workers
        asked = Order(worker_id=worker.worker_id, kind=HoldKind.DRAIN)
        assert orders.give(asked).reason == LAST_WORKER
        unknown = orders.give(Order(worker_id="decode-9", kind=HoldKind.DRAIN))
        assert unknown.reason == UNKNOWN_WORKER and worker.worker_id in unknown.message
        asked.force, asked.dry_run = True, True
        assert orders.give(asked).reason == ""
        assert state_of(here, worker) == "ready"
        asked.dry_run = False
        orders.give(asked)
        assert state_of(here, worker) == "drained"


async def test_the_last_prefill_worker_may_be_held_for_decode_workers_do_its_part() -> None:
    async with bench(1) as here:
        await here.plane.store.join(prefill_member())
        answer = orders_of(here).give(Order(worker_id="prefill-1", kind=HoldKind.CORDON))
        assert (answer.reason, list(answer.others)) == ("", [])
        assert here.plane.fleet.open(Role.PREFILL) == []


async def test_a_prefill_worker_is_drained_when_its_readers_are_done() -> None:
    async with bench(1) as here:
        member = prefill_member()
        await here.plane.store.join(member)
        here.plane.store.report(member.key, EngineLoad(num_leases=1))
        orders_of(here).give(Order(worker_id="prefill-1", kind=HoldKind.DRAIN))
        item = here.plane.fleet.find(member.key)
        assert item is not None and here.plane.fleet.state_of(item) == "draining"
        here.plane.store.report(member.key, EngineLoad())
        assert here.plane.fleet.state_of(item) == "drained"


@asynccontextmanager
async def stubs(num: int) -> AsyncIterator[list[membership_pb2_grpc.MembershipStub]]:
    """Of so many routers that know nothing of each other."""
    if not num:
        yield []
        return
    async with (
        served_plane() as (_, address),
        open_channel(address) as channel,
        stubs(num - 1) as others,
    ):
        yield [membership_pb2_grpc.MembershipStub(channel), *others]


class PlayedWorker:
    """Joins and beats as a worker does, and carries what routers say of it."""

    def __init__(self, incarnation: str = "i1") -> None:
        self.member = member_of(Role.PREFILL, "prefill-1", incarnation=incarnation)
        self.hold = membership_pb2.WorkerHold()

    async def join(self, router: membership_pb2_grpc.MembershipStub) -> None:
        request = membership_pb2.JoinRequest(member=member_to_wire(self.member), hold=self.hold)
        self._hear((await router.Join(request)).hold)

    async def beat(self, router: membership_pb2_grpc.MembershipStub) -> None:
        request = membership_pb2.BeatRequest(
            worker_id="prefill-1", incarnation=self.member.incarnation, hold=self.hold
        )
        self._hear((await router.Beat(request)).hold)

    def _hear(self, told: membership_pb2.WorkerHold) -> None:
        if told.number > self.hold.number:
            self.hold = told


async def states(*routers: membership_pb2_grpc.MembershipStub) -> list[str]:
    return [
        (await router.Members(membership_pb2.MembersRequest())).members[0].state
        for router in routers
    ]


async def test_other_routers_hear_of_it_from_the_worker_and_of_its_end_too() -> None:
    async with stubs(2) as (one, two):
        worker = PlayedWorker()
        await worker.join(one)
        await worker.join(two)
        await one.Hold(Order(worker_id="prefill-1", kind=HoldKind.CORDON))
        assert await states(one, two) == ["cordoned", "ready"]
        for router in (one, two):
            await worker.beat(router)
        assert await states(one, two) == ["cordoned", "cordoned"]
        await two.Hold(Order(worker_id="prefill-1", kind=HoldKind.NONE))
        for router in (two, one):
            await worker.beat(router)
        assert await states(one, two) == ["ready", "ready"]


async def test_a_router_that_forgot_hears_of_it_when_the_worker_joins() -> None:
    async with stubs(2) as (one, new):
        worker = PlayedWorker()
        await worker.join(one)
        await one.Hold(Order(worker_id="prefill-1", kind=HoldKind.CORDON))
        await worker.beat(one)
        await worker.join(new)
        assert await states(new) == ["cordoned"]


async def test_who_is_started_again_is_held_and_the_next_of_one_that_was_ended_is_not() -> None:
    for was_asked, state in ((True, "ready"), (False, "cordoned")):
        async with stubs(1) as (router,):
            worker = PlayedWorker()
            await worker.join(router)
            await router.Hold(Order(worker_id="prefill-1", kind=HoldKind.CORDON))
            await router.Leave(
                membership_pb2.LeaveRequest(
                    worker_id="prefill-1", incarnation="i1", was_asked=was_asked
                )
            )
            restarted = PlayedWorker("i2")
            await restarted.join(router)
            assert await states(router) == [state]
            assert restarted.hold.kind == ("" if was_asked else HoldKind.CORDON)


def farewell(incarnation: str = "i1") -> membership_pb2.LeaveRequest:
    return membership_pb2.LeaveRequest(
        worker_id="prefill-1", incarnation=incarnation, was_asked=True
    )


def without_a_goodbye() -> membership_pb2.LeaveRequest:
    """As where its lease runs out."""
    return membership_pb2.LeaveRequest(worker_id="prefill-1", incarnation="i1")


@pytest.mark.parametrize("order", ["the one that knows first", "the other first"])
async def test_a_hold_that_is_over_does_not_come_back_from_a_router_that_missed_the_goodbye(
    order: str,
) -> None:
    async with stubs(2) as (one, two):
        worker = PlayedWorker()
        for router in (one, two):
            await worker.join(router)
        await one.Hold(Order(worker_id="prefill-1", kind=HoldKind.DRAIN))
        for router in (one, two):
            await worker.beat(router)
        await one.Leave(farewell())
        await two.Leave(without_a_goodbye())
        successor = PlayedWorker("i2")
        routers = (one, two) if order == "the one that knows first" else (two, one)
        for router in routers:
            await successor.join(router)
        for router in (*routers, *routers):
            await successor.beat(router)
        assert await states(one, two) == ["ready", "ready"]
        assert successor.hold.kind == ""


async def test_who_may_not_join_is_not_heard_of_holds_either() -> None:
    async with served_plane() as (plane, address), open_channel(address) as channel:
        router = membership_pb2_grpc.MembershipStub(channel)
        for number in range(MAX_MEMBERS):
            await plane.store.join(member_of(Role.PREFILL, f"prefill-{number + 10}"))
        worker = PlayedWorker()
        worker.hold = membership_pb2.WorkerHold(kind=HoldKind.DRAIN, number=7)
        with pytest.raises(grpc.aio.AioRpcError):
            await worker.join(router)
        assert plane.fleet.holds.of("prefill-1") == NO_HOLD


async def test_a_worker_that_is_not_heard_is_not_said_to_be_drained() -> None:
    async with bench(2) as here:
        worker = here.workers[0]
        orders_of(here).give(Order(worker_id=worker.worker_id, kind=HoldKind.DRAIN))
        item = here.plane.fleet.find(worker.member().key)
        assert item is not None and item.is_drained(is_silent=False)
        assert item.state_in_words(is_silent=True) == "silent,draining"
        assert not item.is_drained(is_silent=True)
        item.session = _Closed()  # type: ignore[assignment]
        assert item.state_in_words(is_silent=False) == "connecting,draining"
        assert not item.is_drained(is_silent=False)


class _Closed:
    """A link that is not open."""

    is_open = False
    num_in_flight = 0

    async def close(self, reason: str) -> None:
        return
