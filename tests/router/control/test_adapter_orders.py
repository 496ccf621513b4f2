"""Orders about adapters: told to all workers, and to those that join later while they stand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from cluster.adapter import Adapter, LoadedAdapter
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import AdapterRefused, SplitserveError, WorkerLost
from cluster.generation import EngineLoad
from cluster.membership.member import Member
from cluster.world import World
from protos.worker_pb2 import (
    LoadAdapterRequest,
    LoadAdapterResponse,
    UnloadAdapterRequest,
    UnloadAdapterResponse,
)
from router.control.plane import FleetPlane
from router.control.standing_adapters import SAYS_SO_AFTER_S
from tests.router.fake_decode_worker import until
from tests.router.planes import prefill_member, running_plane

DIGEST, OTHER = "a" * 32, "b" * 32
LOAD = LoadAdapterRequest(name="one", path="folder")
UNLOAD = UnloadAdapterRequest(name="one")


@dataclass
class PlayedWorkers(GrpcDialer):
    """All workers at once: `told` has their addresses, and names with a sign."""

    told: list[tuple[str, str]] = field(default_factory=list)
    error: SplitserveError | None = None
    now_s: float = 0.0

    def operator(self, address: str) -> PlayedLink:  # type: ignore[override]
        return PlayedLink(self, address)

    def clock(self) -> float:
        return self.now_s

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
        return LoadAdapterResponse(digest=DIGEST)

    async def unload_adapter(
        self, request: UnloadAdapterRequest, *, timeout_s: float
    ) -> UnloadAdapterResponse:
        self._take(f"-{request.name}")
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
async def fleet() -> AsyncIterator[tuple[FleetPlane, PlayedWorkers]]:
    workers = PlayedWorkers()
    world = World(dialer=workers, clock=workers.clock)
    async with running_plane(world=world, worker_lease_s=1e6) as plane:
        await plane.store.join(OLD)
        yield plane, workers


async def tells(plane: FleetPlane, worker: Member, digest: str) -> None:
    told = (LoadedAdapter(Adapter("one", digest), True),) if digest else ()
    await plane.store.beat(worker.key, EngineLoad(), draining=False, adapters=told)


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
async def test_what_failed_is_told_again_with_the_next_change_unless_it_was_refused(
    error: SplitserveError, times: int
) -> None:
    async with fleet() as (plane, workers):
        await plane.adapter_orders.unload(UNLOAD)
        workers.error = error
        await plane.store.join(NEW)
        await until(lambda: bool(workers.of(NEW)))
        workers.error = None
        await plane.store.join(THIRD)
        await until(lambda: bool(workers.of(THIRD)))
        assert workers.of(NEW) == ["-one"] * times
