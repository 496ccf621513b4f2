"""Whose the workers' time was, as an operator reads it of a router that has sent requests."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from protos import fleet_watch_pb2, worker_pb2
from router.control.plane import FleetPlane
from router.control.work_message import work_to_wire
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, tokens_frame, until


async def told(plane: FleetPlane) -> dict[str, list[fleet_watch_pb2.TenantWork]]:
    """By worker."""
    answer = await work_to_wire(plane.fleet.ledger, plane._world.clock)
    return {each.worker_id: list(each.tenants) for each in answer.workers}


async def tokens_of(
    plane: FleetPlane, worker_id: str = "decode-1"
) -> list[tuple[str, int, int, int]]:
    return [
        (each.tenant, each.num_requests, each.prefilled_tokens, each.decoded_tokens)
        for each in (await told(plane))[worker_id]
    ]


async def test_a_requests_tokens_are_its_tenants_at_the_worker_that_computed_them() -> None:
    async with router(FakeDecodeWorker(answer_at_once=True)) as plane:
        for number, tenant in enumerate(("acme", "acme", "")):
            asked = request(f"r-{number}", max_tokens=5)
            await collect(plane, replace(asked, tenant=tenant))
        assert await tokens_of(plane) == [("acme", 2, 18, 8), ("", 1, 9, 4)]
        assert not plane.fleet.ledger._under_way


async def test_what_is_under_way_counts_and_what_is_given_up_counts_as_far_as_it_came() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        task = asyncio.create_task(collect(plane, request("a", max_tokens=9)))
        await until(lambda: worker.submitted)
        worker.send(tokens_frame("a", 100))
        worker.send(tokens_frame("a", 101, 102))
        work = plane.fleet.ledger._under_way
        await until(lambda: [each._progress()[1] for each in work] == [2])
        assert await tokens_of(plane) == [("", 1, 0, 2)]
        task.cancel()
        await asyncio.wait([task])
        assert await tokens_of(plane) == [("", 1, 0, 2)]
        assert not plane.fleet.ledger._under_way


class FailsOnce(FakeDecodeWorker):
    """The first request that comes to any of those that share `tried` fails."""

    def __init__(self, worker_id: str, tried: list[str]) -> None:
        super().__init__(worker_id, answer_at_once=True)
        self._tried = tried

    def submit_has_come(self, submit: worker_pb2.Submit) -> None:
        self.fails_with = None if self._tried else "worker_lost"
        self._tried.append(submit.request_id)
        super().submit_has_come(submit)


async def test_a_request_that_goes_to_another_worker_is_counted_at_both() -> None:
    tried: list[str] = []
    async with router(FailsOnce("decode-1", tried), FailsOnce("decode-2", tried)) as plane:
        await collect(plane, request("a", max_tokens=3))
        assert len(tried) == 2
        counts = sorted(await tokens_of(plane, "decode-1") + await tokens_of(plane, "decode-2"))
        assert counts == [("", 1, 0, 0), ("", 1, 9, 2)]
        assert not plane.fleet.ledger._under_way
