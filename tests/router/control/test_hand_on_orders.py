"""Who takes over what a leaving worker has cached, and what the router says of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cluster.cache_change import CacheChange, CachedBlock
from cluster.errors import WorkerLost
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.hold import UNKNOWN_WORKER
from cluster.pairing import VLLM
from protos import membership_pb2, worker_pb2
from router.control.hand_on_orders import NO_RECEIVER, HandOnOrders, receivers_of
from router.control.plane import FleetPlane
from router.telemetry.diary import Happening
from tests.router.planes import PAIRING, member_of, prefill_member, running_plane

Order = membership_pb2.HandOnOrder


@dataclass
class PlayedWorker:
    """The one that is to leave; and the dialer that reaches it."""

    report: worker_pb2.HandOnReport = field(default_factory=worker_pb2.HandOnReport)
    failure: WorkerLost | None = None
    may_answer: asyncio.Event | None = None
    asked: list[Any] = field(default_factory=list)
    num_closed: int = 0

    def prefix_cache(self, address: str) -> PlayedWorker:
        return self

    async def hand_on(self, request: Any, *, timeout_s: float) -> Any:
        self.asked.append(request)
        if self.may_answer is not None:
            await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return self.report

    async def close(self) -> None:
        self.num_closed += 1


async def join(plane: FleetPlane, member: Any, *, free: int, cached: int = 0) -> None:
    await plane.store.join(member)
    load = EngineLoad(total_blocks=free + cached, free_blocks=free, cached_blocks=cached)
    await plane.store.beat(member.key, load, draining=False)


def has_cached(plane: FleetPlane, member: Any, num_blocks: int) -> None:
    names = [bytes([index]) * 16 for index in range(num_blocks)]
    parents = [None, *names]
    stored = [
        CachedBlock(name, parent, [index] * 4)
        for index, (name, parent) in enumerate(zip(names, parents, strict=False))
    ]
    plane.index.apply(member.key, CacheChange(stored=stored))


def named(plane: FleetPlane, worker_id: str, cached_tokens: int, **wanted: Any) -> list[str]:
    members = {item.key.worker_id: item for item in plane.fleet.members}
    found = receivers_of(members[worker_id], members.values(), cached_tokens, **wanted)
    return [each.worker.worker_id for each in found]


async def test_workers_of_its_role_take_over_while_they_have_room_and_else_the_others_too() -> None:
    async with running_plane() as plane:
        await join(plane, prefill_member("p0"), free=0, cached=100)
        await join(plane, prefill_member("p1"), free=10, cached=20)
        await join(plane, member_of(Role.PREFILL, "p2"), free=0, cached=100)
        await join(plane, member_of(Role.DECODE, "d0"), free=30)
        assert named(plane, "p0", 280) == ["p2", "p1"]
        plane.fleet.members[-1].session = None  # d0 is to be had, though nobody listens there
        among = ["p1", "d0", "d1"]
        assert named(plane, "p0", 4, wanted=among) == ["p1"]
        assert named(plane, "p0", 280, wanted=among) == ["d0", "p1"]
        rooms = receivers_of(plane.fleet.members[0], plane.fleet.members, 0, wanted=["p1"])
        assert [each.room_tokens for each in rooms] == [(10 + 10) * 4]


async def test_a_worker_that_cannot_use_the_blocks_gets_none() -> None:
    async with running_plane() as plane:
        await join(plane, prefill_member("p0"), free=9)
        await join(plane, prefill_member("off", prefix_cache_off=True), free=9)
        other = replace(PAIRING, dtype="float32")
        await join(plane, prefill_member("other", pairing=other), free=9)
        strange = replace(PAIRING, weights=VLLM)
        await join(plane, prefill_member("strange", pairing=strange), free=9)
        await join(plane, prefill_member("full"), free=0)
        assert named(plane, "p0", 4) == []


async def test_what_was_handed_on_is_answered_and_told_as_an_event() -> None:
    async with running_plane() as plane:
        await join(plane, prefill_member("p0"), free=9)
        await join(plane, prefill_member("p1"), free=9)
        has_cached(plane, prefill_member("p0"), 3)
        got = worker_pb2.ReceivedPrefixes(worker_id="p1", handed_tokens=8, num_bytes=3_000_000)
        worker = PlayedWorker(
            worker_pb2.HandOnReport(cached_tokens=12, receivers=[got], seconds=0.25)
        )
        orders = HandOnOrders(plane.fleet, plane.index, worker)  # type: ignore[arg-type]
        trial = await orders.give(Order(worker_id="p0", dry_run=True), timeout_s=5)
        assert (trial.reason, trial.report.cached_tokens, worker.asked) == ("", 12, [])
        answer = await orders.give(Order(worker_id="p0"), timeout_s=5)
        assert answer.reason == "" and answer.report.receivers[0].handed_tokens == 8
        [asked] = worker.asked
        assert asked.source.worker_id == "p0" and worker.num_closed == 1
        event = plane.fleet.diary.after(0, 10)[-1]
        assert (event.kind, event.subject) == (Happening.HANDED_ON, "p0")
        assert event.cause == (
            "8 of 12 cached tokens to p1 (3.0 MB in 0.25 s); 0 were known there, 4 are left"
        )


async def test_of_two_that_leave_at_once_each_is_told_of_room_that_the_other_does_not_take() -> (
    None
):
    async with running_plane() as plane:
        await join(plane, prefill_member("p0"), free=0)
        await join(plane, prefill_member("p1"), free=0)
        await join(plane, prefill_member("p2"), free=30)
        await join(plane, prefill_member("p3"), free=10)
        has_cached(plane, prefill_member("p0"), 20)
        worker = PlayedWorker(may_answer=asyncio.Event())
        orders = HandOnOrders(plane.fleet, plane.index, worker)  # type: ignore[arg-type]
        given = [asyncio.create_task(orders.give(Order(worker_id="p0"), timeout_s=5))]
        while not worker.asked:
            await asyncio.sleep(0)
        given.append(asyncio.create_task(orders.give(Order(worker_id="p1"), timeout_s=5)))
        while len(worker.asked) < 2:
            await asyncio.sleep(0)
        worker.may_answer.set()
        await asyncio.gather(*given)
        await orders.give(Order(worker_id="p1"), timeout_s=5)
        rooms = [[each.room_tokens // 4 for each in asked.receivers] for asked in worker.asked]
        assert rooms == [[30, 10], [15, 5], [30, 10]]


@pytest.mark.parametrize("free", [0, 9])
async def test_what_cannot_be_handed_on_is_said_with_a_reason(free: int) -> None:
    async with running_plane() as plane:
        await join(plane, prefill_member("p0"), free=9)
        await join(plane, prefill_member("p1"), free=free)
        worker = PlayedWorker(failure=WorkerLost("it died"))
        orders = HandOnOrders(plane.fleet, plane.index, worker)  # type: ignore[arg-type]
        unknown = await orders.give(Order(worker_id="nobody"), timeout_s=5)
        assert unknown.reason == UNKNOWN_WORKER
        answer = await orders.give(Order(worker_id="p0"), timeout_s=5)
        assert answer.reason == ("worker_lost" if free else NO_RECEIVER)
        assert worker.num_closed == len(worker.asked) == (1 if free else 0)
