"""What a router says to a request that it has read nothing of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec import structs

from cluster.errors import QueueFull
from router.control.plane import FleetPlane
from router.dispatch.stream import Newcomer
from router.tenants.priority import Priority
from router.tenants.tenant import Tenant
from tests.router.dispatch_bench import collect, is_idle, outcome, request, router, time_limits
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until


def newcomer(request_id: str, **terms: object) -> Newcomer:
    return Newcomer(request_id, Tenant(**terms), time_limits(30.0))  # type: ignore[arg-type]


def refusals(plane: FleetPlane, priority: Priority) -> float:
    labels = {"class": str(priority), "reason": "queue_full"}
    return plane.registry.get_sample_value("splitserve_refusals_total", labels) or 0.0


def _fill(plane: FleetPlane, num: int) -> Iterator[asyncio.Task[object]]:
    """All of one tenant; the first runs."""
    for at in range(num):
        asked = structs.replace(request(f"r{at}"), tenant="busy")
        yield asyncio.create_task(collect(plane, asked))  # type: ignore[arg-type]


async def _answer(plane: FleetPlane, worker: FakeDecodeWorker, names: list[str]) -> None:
    for name in names:
        await until(lambda name=name: name in [r.request_id for r in worker.submitted])
        worker.send(tokens_frame(name, 5, 6, last=True))
        worker.send(ended_frame(name, made=2))


async def test_where_the_line_is_full_it_says_what_the_line_would() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1, max_queued_requests=2) as plane:
        plane.source.check_room(newcomer("early"))
        tasks = list(_fill(plane, 3))
        await until(lambda: plane.admission.num_queued == 2)
        with pytest.raises(QueueFull) as unread:
            plane.source.check_room(newcomer("r9", name="busy"))
        assert outcome(plane, "queue_full") == refusals(plane, Priority.STANDARD) == 1
        with pytest.raises(QueueFull) as read:
            await collect(plane, structs.replace(request("r8"), tenant="busy"))
        assert (unread.value.message, unread.value.retry_after_s) == (
            read.value.message,
            read.value.retry_after_s,
        )
        assert outcome(plane, "queue_full") == refusals(plane, Priority.STANDARD) == 2
        await _answer(plane, worker, ["r0", "r1", "r2"])
        await asyncio.gather(*tasks)
        assert is_idle(plane)


async def test_who_would_take_another_s_place_in_a_full_line_comes_in() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1, max_queued_requests=2) as plane:
        tasks = list(_fill(plane, 3))
        await until(lambda: plane.admission.num_queued == 2)
        plane.source.check_room(newcomer("a", name="calm"))
        plane.source.check_room(newcomer("b", name="busy", priority=Priority.INTERACTIVE))
        with pytest.raises(QueueFull):
            plane.source.check_room(newcomer("d", name="calm", priority=Priority.BATCH))
        assert plane.admission.num_queued == 2, "nobody has given way for a question"
        await _answer(plane, worker, ["r0", "r1", "r2"])
        await asyncio.gather(*tasks)


async def test_a_class_that_is_shed_is_refused_unread_and_counted_once() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker, degrade="shed=batch@1,refuse@5") as plane:  # type: ignore[arg-type]
        plane.degradation.look(2.0)
        with pytest.raises(QueueFull, match="class batch"):
            plane.source.check_room(newcomer("b1", name="acme", priority=Priority.BATCH))
        assert outcome(plane, "queue_full") == refusals(plane, Priority.BATCH) == 1
        plane.source.check_room(newcomer("s1", name="acme"))
        assert outcome(plane, "queue_full") == 1


async def test_explain_knows_of_one_that_was_refused_unread() -> None:
    async with router(FakeDecodeWorker(), degrade="shed=batch@1") as plane:  # type: ignore[arg-type]
        plane.degradation.look(2.0)
        with pytest.raises(QueueFull):
            plane.source.check_room(newcomer("b1", name="acme", priority=Priority.BATCH))
        (arrival,) = plane.decisions.unrouted("b1")
        assert (arrival.tenant, arrival.end) == ("acme", "queue_full")
        assert "class batch" in arrival.error and arrival.course.ended_s is not None
        assert arrival in plane.decisions.over()
