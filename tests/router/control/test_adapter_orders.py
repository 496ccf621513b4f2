"""Orders about adapters: told to all workers, and to those that join later while they stand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from cluster.adapter import Adapter, OfferedAdapter, UnreadAdapters
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import AdapterRefused, AdapterUnread, SplitserveError, WorkerLost
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.world import World
from protos.membership_pb2 import AdapterAnswer
from protos.worker_pb2 import (
    LoadAdapterRequest,
    LoadAdapterResponse,
    UnloadAdapterRequest,
    UnloadAdapterResponse,
)
from router.control.adapter_orders import FIRST_REST_S, MAX_REST_S
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.control.standing_adapters import SAYS_SO_AFTER_S
from tests.router.dispatch_bench import collect, request
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import prefill_member, running_plane

DIGEST, OTHER, UNREAD = "a" * 32, "b" * 32, "unread"
ONE = Adapter("one", DIGEST)
LOAD = LoadAdapterRequest(name="one", path="folder")
UNLOAD = UnloadAdapterRequest(name="one")


@dataclass
class PlayedWorkers(GrpcDialer):
    """All workers at once: `told` has their addresses, and names with a sign. What one has done its
    beat says before its answer, where `beats`; else the test sends beats, and time is its own."""

    told: list[tuple[str, str]] = field(default_factory=list)
    error: SplitserveError | None = None
    now_s: float = 0.0
    beats: bool = True
    plane: FleetPlane | None = None
    waits_s: set[float] = field(default_factory=set)
    """That have begun."""

    def __post_init__(self) -> None:
        super().__init__()

    def worker_admin(self, address: str) -> PlayedLink:  # type: ignore[override]
        return PlayedLink(self, address)

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        over_s = self.now_s + seconds
        self.waits_s.add(seconds)
        while self.now_s < over_s:
            await asyncio.sleep(0.005)

    async def done(self, address: str, name: str, digest: str) -> None:
        if not self.beats:
            return
        assert self.plane is not None
        for item in self.plane.fleet.members:
            if item.member.address == address:
                others = [i for i in item.state.adapters if i.adapter.name != name]
                own = [OfferedAdapter(Adapter(name, digest), True)] if digest else []
                told = (*others, *own)
                await self.plane.store.beat(item.key, EngineLoad(), draining=False, adapters=told)

    def of(self, member: Member) -> list[str]:
        return [word for address, word in self.told if address == member.address]


@dataclass
class PlayedLink:
    workers: PlayedWorkers
    address: str

    async def load_adapter(
        self, request: LoadAdapterRequest, *, timeout_s: float
    ) -> LoadAdapterResponse:
        self._take(f"+{request.name}")
        await self.workers.done(self.address, request.name, DIGEST)
        return LoadAdapterResponse(digest=DIGEST)

    async def unload_adapter(
        self, request: UnloadAdapterRequest, *, timeout_s: float
    ) -> UnloadAdapterResponse:
        self._take(f"-{request.name}")
        await self.workers.done(self.address, request.name, "")
        return UnloadAdapterResponse(known=True)

    def _take(self, word: str) -> None:
        self.workers.told.append((self.address, word))
        if self.workers.error is not None:
            raise self.workers.error

    async def close(self) -> None:
        pass


def member(worker_id: str, incarnation: str = "i1") -> Member:
    address = f"{worker_id}-{incarnation}:9"
    return prefill_member(worker_id, incarnation=incarnation, address=address, version="1")


OLD, NEW, THIRD = member("prefill-1"), member("prefill-1", "i2"), member("prefill-3")


@asynccontextmanager
async def fleet(own: OwnModel | None = None) -> AsyncIterator[tuple[FleetPlane, PlayedWorkers]]:
    workers = PlayedWorkers()
    world = World(dialer=workers, clock=workers.clock, sleep=workers.sleep)
    async with running_plane(own, world=world, worker_lease_s=1e6) as plane:
        workers.plane = plane
        await plane.store.join(OLD)
        yield plane, workers


async def tells(plane: FleetPlane, worker: Member, word: str) -> None:
    """A beat. `word`: the digest of "one"; or that it is still to be read; empty: it is none."""
    told = (OfferedAdapter(Adapter("one", word), True),) if word not in ("", UNREAD) else ()
    unread = UnreadAdapters(frozenset({"one"} if word == UNREAD else ()))
    given = {"draining": False, "adapters": told, "unread_adapters": unread}
    await plane.store.beat(worker.key, EngineLoad(), **given)  # type: ignore[arg-type]


async def test_a_worker_that_starts_anew_is_told_what_was_ordered_before() -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.unload(UnloadAdapterRequest(name="two"))
        await plane.adapter_orders.load(LOAD)
        await plane.store.join(NEW)
        await until(lambda: workers.of(NEW) == ["-two", "+one"])
        await plane.adapter_orders.unload(UNLOAD)
        await plane.store.join(THIRD)
        await until(lambda: workers.of(THIRD) == ["-two", "-one"])
        assert workers.of(OLD) == ["-two", "+one"]


async def test_all_doors_give_orders_to_the_same_place() -> None:
    async with fleet() as (plane, _):
        assert plane._service._adapter_orders is plane.adapter_orders


async def test_an_order_for_the_models_own_name_is_refused_before_anybody_is_told() -> None:
    """Workers do not know it: `--served-name` may be the router's alone."""
    async with fleet(OwnModel(name="prod")) as (plane, workers):
        with pytest.raises(AdapterRefused, match="prod is the name of the model") as refused:
            await plane.adapter_orders.load(LoadAdapterRequest(name="prod", path="folder"))
        assert refused.value.param == "lora_name"
        await plane.store.join(THIRD)
        await plane.adapter_orders.load(LOAD)
        await plane.adapter_orders.unload(UnloadAdapterRequest(name="prod"))
        assert workers.of(OLD) == workers.of(THIRD) == ["+one", "-prod"]


async def test_an_order_that_no_worker_has_done_does_not_stand_and_the_one_before_does() -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.load(LOAD)
        workers.error = AdapterRefused("no such folder")
        [outcome] = (await plane.adapter_orders.unload(UNLOAD)).outcomes
        assert outcome.code == "adapter_refused"
        workers.error = None
        await plane.store.join(NEW)
        await until(lambda: workers.of(NEW) == ["+one"])


@pytest.mark.parametrize(("order", "then"), [(LOAD, OTHER), (LOAD, ""), (UNLOAD, OTHER)])
async def test_files_that_change_after_an_order_have_the_last_word(
    order: LoadAdapterRequest | UnloadAdapterRequest, then: str
) -> None:
    async with fleet() as (plane, workers):
        orders = plane.adapter_orders
        is_load = isinstance(order, LoadAdapterRequest)
        await (orders.load(order) if is_load else orders.unload(order))
        await tells(plane, OLD, OTHER if is_load else DIGEST)  # sent before it was done
        await tells(plane, OLD, DIGEST if is_load else "")
        workers.now_s = SAYS_SO_AFTER_S
        await tells(plane, OLD, then)
        await plane.adapter_orders.load(LoadAdapterRequest(name="two", path="two"))
        await plane.store.join(THIRD)
        await until(lambda: workers.of(THIRD) == ["+two"])


async def test_an_early_beat_of_another_word_does_not_end_an_order() -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.unload(UNLOAD)
        await tells(plane, OLD, DIGEST)
        await tells(plane, OLD, "")
        workers.now_s = SAYS_SO_AFTER_S
        await plane.store.join(THIRD)
        await until(lambda: workers.of(THIRD) == ["-one"])


@pytest.mark.parametrize(
    ("error", "times"), [(WorkerLost("away"), 2), (AdapterRefused("no folder"), 1)]
)
async def test_what_failed_is_told_again_after_a_rest_unless_it_was_refused(
    error: SplitserveError, times: int
) -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.unload(UNLOAD)
        workers.error = error
        await plane.store.join(NEW)
        await until(lambda: bool(workers.of(NEW)))
        workers.error = None
        workers.now_s += FIRST_REST_S
        await plane.store.join(THIRD)
        await until(lambda: bool(workers.of(THIRD)))
        await until(lambda: len(workers.of(NEW)) == times)
        workers.now_s += 100 * MAX_REST_S
        for _ in range(10):
            await asyncio.sleep(0.005)
        assert workers.of(NEW) == ["-one"] * times


async def test_a_worker_that_joins_is_told_first_what_it_is_to_unload() -> None:
    """Loads wait for storage, each for a minute where it hangs; the worker would serve meanwhile
    what was withdrawn."""
    async with fleet() as (plane, workers):
        for name in ("one", "three"):
            await plane.adapter_orders.load(LoadAdapterRequest(name=name, path="folder"))
        await plane.adapter_orders.unload(UnloadAdapterRequest(name="two"))
        workers.error = AdapterUnread("no storage")
        await plane.store.join(NEW)
        in_order = ["-two", "+one", "+three"]
        await until(lambda: workers.of(NEW) == in_order)
        await until(lambda: FIRST_REST_S in workers.waits_s)
        workers.now_s += FIRST_REST_S
        await until(lambda: workers.of(NEW) == 2 * in_order)


async def test_changes_of_the_fleet_have_no_worker_told_more_often() -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.load(LOAD)
        workers.error = AdapterUnread("no storage")
        await plane.store.join(NEW)
        await until(lambda: bool(workers.of(NEW)))
        workers.beats = False
        for turn in range(200):  # its residency changes all the time
            await tells(plane, OLD, DIGEST if turn % 2 else OTHER)
        assert workers.of(NEW) == ["+one"]
        for num_told, rest_s in enumerate((1.0, 2.0, 4.0, 8.0), 2):
            await until(lambda rest_s=rest_s: rest_s in workers.waits_s)
            workers.now_s += rest_s
            await until(lambda num_told=num_told: len(workers.of(NEW)) == num_told)


async def test_a_worker_that_has_gone_is_told_nothing_more() -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.load(LOAD)
        workers.error = AdapterUnread("no storage")
        await plane.store.join(THIRD)
        await until(lambda: FIRST_REST_S in workers.waits_s)
        await plane.store.leave(THIRD.key)
        await until(lambda: plane.fleet.find(THIRD.key) is None)
        workers.now_s += FIRST_REST_S
        for _ in range(10):
            await asyncio.sleep(0.005)
        assert workers.of(THIRD) == ["+one"]


@asynccontextmanager
async def ordered(
    plane: FleetPlane, workers: PlayedWorkers, order: LoadAdapterRequest | UnloadAdapterRequest
) -> AsyncIterator[asyncio.Task[AdapterAnswer]]:
    """A worker has done it, and its beats do not say so yet."""
    workers.beats, sign = False, "+" if isinstance(order, LoadAdapterRequest) else "-"
    orders = plane.adapter_orders
    giving = orders.load(order) if isinstance(order, LoadAdapterRequest) else orders.unload(order)
    task = asyncio.create_task(giving)
    await until(lambda: workers.of(OLD)[-1:] == [f"{sign}{order.name}"])
    await until(lambda: SAYS_SO_AFTER_S in workers.waits_s)
    assert not task.done()
    async with asyncio.timeout(30):
        yield task


async def test_a_request_that_comes_right_after_the_answer_is_served() -> None:
    """The beat comes after the worker's answer to the order."""
    workers = PlayedWorkers(beats=False)
    async with (
        FakeDecodeWorker(answer_at_once=True) as decode,
        running_plane(world=World(dialer=workers), worker_lease_s=1e6) as plane,
    ):
        worker = decode.member(version="1")
        await plane.store.join(worker)
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 1)

        def is_done() -> bool:
            order = plane.adapter_orders._standing.of("one")
            return order is not None and bool(order.done)

        async def beat_after_the_answer() -> None:
            await until(is_done)
            await tells(plane, worker, DIGEST)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(beat_after_the_answer())
            await plane.adapter_orders.load(LOAD)
            assert plane.adapters.offered("one") == ONE
            await collect(plane, structs.replace(request(), adapter=ONE))
        assert [submit.adapter for submit in decode.submitted] == [DIGEST]


@pytest.mark.parametrize(
    ("order", "before"), [(LOAD, ""), (LOAD, OTHER), (UNLOAD, DIGEST), (UNLOAD, UNREAD)]
)
async def test_an_order_is_answered_once_every_worker_that_has_done_it_says_so(
    order: LoadAdapterRequest | UnloadAdapterRequest, before: str
) -> None:
    after = DIGEST if order is LOAD else ""
    async with fleet() as (plane, workers):
        await plane.store.join(THIRD)
        for worker in (OLD, THIRD):
            await tells(plane, worker, before)
        async with ordered(plane, workers, order) as task:
            await tells(plane, OLD, before)  # sent before it was done
            await tells(plane, OLD, after)
            done, _ = await asyncio.wait([task], timeout=0.05)
            assert not done
            await tells(plane, THIRD, after)
            assert [each.digest for each in (await task).outcomes] == [after, after]


@pytest.mark.parametrize("ends_with", ["a worker that leaves", "another order", "the router's end"])
async def test_nobody_waits_for_a_beat_that_cannot_come(ends_with: str) -> None:
    async with fleet() as (plane, workers), ordered(plane, workers, LOAD) as task:
        if ends_with == "a worker that leaves":
            await plane.store.leave(OLD.key)
        elif ends_with == "another order":
            await plane.adapter_orders.unload(UNLOAD)
        else:
            await plane.fleet.close()
        with capture_logs() as lines:
            assert [each.digest for each in (await task).outcomes] == [DIGEST]
        assert lines == []


async def test_a_worker_whose_beats_do_not_say_what_it_has_done_holds_an_order_up_for_a_while() -> (
    None
):
    async with fleet() as (plane, workers), ordered(plane, workers, LOAD) as task:
        workers.now_s = SAYS_SO_AFTER_S
        with capture_logs() as lines:
            assert [each.digest for each in (await task).outcomes] == [DIGEST]
        assert [(line["name"], line["workers"]) for line in lines] == [("one", ["prefill-1"])]


async def test_a_name_is_known_while_a_worker_has_it_or_is_to_load_it() -> None:
    async with fleet() as (plane, workers):
        orders = plane.adapter_orders
        assert not orders.may_be_known("one")
        await tells(plane, OLD, DIGEST)  # from its folder
        assert orders.may_be_known("one") and not orders.may_be_known("two")
        await tells(plane, OLD, "")
        assert not orders.may_be_known("one")
        await orders.load(LOAD)
        assert orders.may_be_known("one")
        await orders.unload(UNLOAD)
        assert not orders.may_be_known("one")
