"""Pools that grow and shrink, over processes that a test plays."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence

import pytest

from cluster.config import EngineOptions, ServeOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.launcher.protocol import NodeFacts, ProcessSpec
from cluster.process.backoff import Backoff
from cluster.process.startup import StartupFailed, StartupReady
from cluster.scaling.scaler import PoolState, RefusalReason, ScaleOrder, ScaleRefused
from cluster.scaling.wire import order_from_wire, order_to_wire
from cluster.supervisor.fleet import Machine, plan_fleet
from cluster.supervisor.growth import Growth
from cluster.supervisor.pool import pool_sizes
from cluster.supervisor.sizing import Sizing
from cluster.supervisor.supervisor import Supervisor
from tests.cluster.supervisor.supervised_fleet import PlayedFleet
from tests.cluster.supervisor.test_child_in_virtual_time import PlayedLauncher, PlayedProcess
from tests.virtual_time import VirtualTime, settle


class StayingLauncher(PlayedLauncher):
    """Its place is never lost."""

    async def until_lost(self) -> None:
        await asyncio.Event().wait()


class SizedFleet:
    """A fleet that serves."""

    def __init__(self, *, gpus: tuple[str, ...] = (), **sizes: int) -> None:
        self.options = ServeOptions(
            **sizes,  # type: ignore[arg-type]
            engine=EngineOptions(device="cuda" if gpus else "cpu"),
        )
        self.machine = Machine(8, gpus)
        self.num_ranks_more = 100
        self.handed_on: list[str] = []
        self.heirs: list[set[str]] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.time = VirtualTime()
        self.launcher = StayingLauncher(self.time)
        self.played = PlayedFleet(**sizes)
        self.supervisor = Supervisor(
            self.launcher,
            self.played.reserve,
            backoff=lambda: Backoff(1.0, 8.0),
            clock=self.time,
            sleep=self.time.sleep,
        )
        self.sizing = Sizing(
            self.options,
            self.machine,
            pool_sizes(self.options),
            self.supervisor,
            self.played.reserve,
            free_memory_share=lambda: 0.5,
            check_room=self.check_room,
            grace_s=30.0,
            hand_on=self._hand_on,
        )

    async def check_room(self, num_ranks: int) -> None:
        if num_ranks > self.num_ranks_more:
            raise ConfigError(f"there is no room for {num_ranks} rank(s)")

    async def _hand_on(self, name: str, receivers: Sequence[str]) -> None:
        self.handed_on.append(name)
        self.heirs.append(set(receivers))
        await self.may_go.wait()

    async def begin(self) -> SizedFleet:
        await self.supervisor.start(plan_fleet(self.options, self.machine))
        await settle()
        return self

    async def end(self) -> None:
        await self.sizing.close()
        await self.played.reserve.close()
        await self.supervisor.stop(0.0)

    @property
    def names(self) -> list[str]:
        return sorted(child.spec.name for child in self.supervisor.children)

    def pool(self, name: str) -> PoolState:
        return next(state for state in self.sizing.states if state.name == name)

    def environ_of(self, name: str) -> str:
        child = next(c for c in self.supervisor.children if c.spec.name == name)
        return child.spec.environ["CUDA_VISIBLE_DEVICES"]

    async def refusal_of(self, order: ScaleOrder) -> RefusalReason:
        with pytest.raises(ScaleRefused) as refused:
            await self.sizing.take(order)
        return refused.value.reason


@pytest.fixture
async def fleet() -> AsyncIterator[SizedFleet]:
    running = await SizedFleet(prefill=1, decode=2).begin()
    yield running
    await running.end()


def order(pool: str, size: int, *leaving: str, is_dry_run: bool = False) -> ScaleOrder:
    return ScaleOrder(pool=pool, size=size, leaving=leaving, is_dry_run=is_dry_run)


async def test_a_pool_grows_by_a_worker_under_the_first_free_name(fleet: SizedFleet) -> None:
    plan = await fleet.sizing.take(order("prefill", 2))
    await settle()
    assert plan.starting == ("prefill-1",) and plan.size_before == 1
    assert fleet.names == ["decode-0", "decode-1", "prefill-0", "prefill-1", "router"]
    assert fleet.pool("prefill").is_settled and fleet.pool("prefill").generation == 2


async def test_the_worker_that_was_named_leaves_and_is_not_started_again(fleet: SizedFleet) -> None:
    plan = await fleet.sizing.take(order("decode", 1, "decode-0"))
    await fleet.time.advance(60.0)
    assert plan.leaving == ("decode-0",)
    assert fleet.names == ["decode-1", "prefill-0", "router"]
    assert fleet.pool("decode").is_settled
    assert fleet.supervisor.loss is None
    await fleet.sizing.take(order("decode", 2))
    await settle()
    assert "decode-0" in fleet.names


async def test_others_take_over_what_a_worker_has_cached_before_it_leaves(
    fleet: SizedFleet,
) -> None:
    fleet.may_go.clear()
    await fleet.sizing.take(order("decode", 1, "decode-0"))
    await fleet.time.advance(60.0)
    assert fleet.handed_on == ["decode-0"] and "decode-0" in fleet.names
    fleet.may_go.set()
    await fleet.time.advance(60.0)
    assert "decode-0" not in fleet.names and fleet.pool("decode").is_settled


async def test_what_others_have_already_is_not_handed_on_again(fleet: SizedFleet) -> None:
    given = order("decode", 1, "decode-0")
    told = order_from_wire(order_to_wire(dataclasses.replace(given, is_handed_on=True)))
    await fleet.sizing.take(told)
    await fleet.time.advance(60.0)
    assert fleet.handed_on == [] and "decode-0" not in fleet.names


async def test_who_leaves_with_others_hands_on_to_those_alone_who_stay() -> None:
    fleet = await SizedFleet(prefill=2, decode=3).begin()
    await fleet.sizing.take(order("decode", 1))
    await fleet.time.advance(60.0)
    assert sorted(fleet.handed_on) == ["decode-1", "decode-2"]
    assert fleet.heirs == [{"decode-0", "prefill-0", "prefill-1"}] * 2
    await fleet.sizing.take(order("prefill", 1))
    await fleet.time.advance(60.0)
    assert fleet.heirs[2:] == [set()]  # as the router sees fit
    await fleet.end()


async def test_a_worker_leaves_also_when_nothing_can_be_handed_on(
    fleet: SizedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(name: str, receivers: Sequence[str]) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(fleet.sizing, "_hand_on", fails)
    await fleet.sizing.take(order("decode", 1, "decode-0"))
    await fleet.time.advance(60.0)
    assert "decode-0" not in fleet.names and fleet.pool("decode").is_settled


async def test_a_worker_that_is_lost_while_it_leaves_is_gone_and_is_not_started_again(
    fleet: SizedFleet,
) -> None:
    children = fleet.supervisor.children
    place = next(i for i, child in enumerate(children) if child.spec.name == "decode-0")
    leaving = fleet.launcher.processes[place]
    leaving.is_kept = True
    await fleet.sizing.take(order("decode", 1, "decode-0"))
    await settle()
    assert not fleet.pool("decode").is_settled
    leaving.end(-9)
    await fleet.time.advance(60.0)
    assert fleet.names == ["decode-1", "prefill-0", "router"]
    assert fleet.pool("decode").is_settled and fleet.supervisor.loss is None


async def test_a_dry_run_says_the_same_and_changes_nothing(fleet: SizedFleet) -> None:
    plan = await fleet.sizing.take(order("decode", 1, is_dry_run=True))
    await settle()
    assert plan.leaving == ("decode-1",)
    assert "decode-1" in fleet.names and fleet.pool("decode").generation == 1


async def test_what_cannot_be_is_refused_with_a_reason(fleet: SizedFleet) -> None:
    assert await fleet.refusal_of(order("encode", 2)) is RefusalReason.NO_SUCH_POOL
    assert await fleet.refusal_of(order("decode", 0)) is RefusalReason.BELOW_ONE
    assert await fleet.refusal_of(order("decode", 1, "decode-7")) is RefusalReason.NO_SUCH_WORKER


async def test_a_pool_on_its_way_is_left_alone_until_it_is_there(fleet: SizedFleet) -> None:
    fleet.launcher.are_ready = False
    await fleet.sizing.take(order("prefill", 2))
    await settle()
    assert await fleet.refusal_of(order("prefill", 3)) is RefusalReason.CHANGING
    assert not fleet.pool("prefill").is_settled
    fleet.launcher.processes[-1].say(StartupReady("127.0.0.1:9"))
    await settle()
    await fleet.sizing.take(order("prefill", 3, is_dry_run=True))


async def test_a_worker_that_does_not_start_is_given_up_and_the_pool_says_why(
    fleet: SizedFleet,
) -> None:
    fleet.launcher.are_ready = False
    await fleet.sizing.take(order("prefill", 2))
    await settle()
    fleet.launcher.processes[-1].say(StartupFailed("out_of_memory", "no room for the model"))
    await fleet.time.advance(10.0)
    state = fleet.pool("prefill")
    assert state.num_wanted == state.num_present == 1
    assert "prefill-1 did not start" in state.problem and "no room for the model" in state.problem
    assert fleet.supervisor.loss is None


async def test_a_machine_that_makes_no_process_is_said_and_the_pool_goes_on(
    fleet: SizedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fleet.launcher, "launch", _no_process)
        await fleet.sizing.take(order("prefill", 2))
        await settle()
    state = fleet.pool("prefill")
    assert state.num_wanted == state.num_present == 1 and "no more processes" in state.problem
    await fleet.sizing.take(order("prefill", 2))
    await settle()
    assert fleet.pool("prefill").is_settled
    await fleet.sizing.take(order("prefill", 1))
    await fleet.time.advance(60.0)
    assert fleet.pool("prefill").is_settled and fleet.supervisor.loss is None


async def _no_process(spec: ProcessSpec) -> PlayedProcess:
    raise BlockingIOError("no more processes")


async def test_a_new_worker_takes_a_gpu_that_no_other_has_or_is_refused() -> None:
    fleet = await SizedFleet(prefill=1, decode=1, gpus=("0", "1", "2")).begin()
    assert await fleet.refusal_of(order("decode", 3)) is RefusalReason.GPUS
    assert (await fleet.sizing.take(order("decode", 2))).num_gpus == 1
    await settle()
    assert fleet.environ_of("decode-1") == "2"
    assert await fleet.refusal_of(order("prefill", 2)) is RefusalReason.GPUS
    await fleet.sizing.take(order("decode", 1, "decode-0"))
    await fleet.time.advance(60.0)
    await fleet.sizing.take(order("prefill", 2))
    await settle()
    assert fleet.environ_of("prefill-1") == "1"
    await fleet.end()


async def test_what_the_place_has_no_room_for_is_refused_before_anything_is_changed(
    fleet: SizedFleet,
) -> None:
    fleet.num_ranks_more = 1
    assert await fleet.refusal_of(order("prefill", 3)) is RefusalReason.ROOM
    assert await fleet.refusal_of(order("prefill", 3, is_dry_run=True)) is RefusalReason.ROOM
    assert fleet.pool("prefill").generation == 1
    await fleet.sizing.take(order("prefill", 2))
    await settle()
    assert fleet.pool("prefill").is_settled


def test_a_new_worker_on_a_node_has_the_memory_that_others_there_have_left() -> None:
    """Two have the rest: the third takes what they have left, and no third of all."""
    machine = Machine(8, address="10.0.0.1")
    growth = Growth(ServeOptions(prefill=2, decode=1), machine, Role.PREFILL, ("prefill-1",))
    [spec] = growth.specs([])
    assert spec.argv_at is not None

    def share_of(now: float) -> float:
        node = NodeFacts(
            address="10.0.0.1", num_cores=8, free_memory_share=0.9, free_memory_share_now=now
        )
        words = spec.argv_at(node)  # type: ignore[misc]
        [share] = [word for word in words if word.startswith("--memory-share=")]
        return float(share.partition("=")[2])

    assert share_of(0.9) == pytest.approx(3 * share_of(0.1), rel=0.01)
    assert share_of(0.1) == pytest.approx(0.1)


async def test_workers_that_share_one_gpu_get_no_other_beside_them() -> None:
    fleet = await SizedFleet(prefill=1, decode=1, gpus=("0",)).begin()
    assert await fleet.refusal_of(order("decode", 2)) is RefusalReason.GPUS
    await fleet.end()


async def test_a_spare_takes_the_new_place_and_a_new_worker_is_the_spare() -> None:
    fleet = await SizedFleet(prefill=1, decode=1, decode_warm_spares=1).begin()
    assert fleet.played.in_place == ["decode-0"]
    await fleet.sizing.take(order("decode", 2))
    await settle()
    assert fleet.played.in_place == ["decode-0", "decode-1"]
    assert [spare.name for spare in fleet.played.reserve.spares] == ["decode-2"]
    assert fleet.pool("decode").is_settled
    await fleet.end()
