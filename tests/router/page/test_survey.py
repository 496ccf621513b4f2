"""What a snapshot says of a fleet, and what taking one asks of the loop."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec import structs

from cluster.identity import Role
from cluster.process.loop_share import LoopShare
from router.control.plane import FleetPlane
from router.fleet.request_share import Seats
from router.fleet.stage import RequestStage
from router.page.decision_rows import decision_row
from router.page.snapshot import Blocks, PoolRow, QueueRow
from router.page.survey import (
    MAX_DECISIONS,
    MAX_OVER,
    MAX_WORKERS,
    SLICE_REQUESTS,
    SLICE_WORKERS,
    telling,
)
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, tokens_frame, until
from tests.router.page.staged import LOAD, joined, lasting_plane, member, survey_of
from tests.router.planes import prefill_member


async def test_pools_and_workers_are_as_they_said_last() -> None:
    async with lasting_plane() as plane:
        await joined(plane, Role.PREFILL, "prefill-0")
        await joined(plane, Role.PREFILL, "prefill-1")
        told = await survey_of(plane).take()
        assert [(row.id, row.state, row.running, row.waiting) for row in told.workers] == [
            ("prefill-0", "ready", 3, 1),
            ("prefill-1", "ready", 3, 1),
        ]
        assert told.workers[0].blocks == Blocks(60, 20, 10, 6, 4)
        assert told.pools[0] == PoolRow(
            "prefill", "prefill", 2, 2, 6, 2, Blocks(120, 40, 20, 12, 8)
        )
        assert told.pools[1] == PoolRow("decode", "decode")
        assert (told.num_workers, told.problem) == (2, "no decode worker has joined")


async def test_a_request_is_counted_where_it_is_from_stage_to_stage() -> None:
    async with lasting_plane() as plane:
        await joined(plane, Role.PREFILL, "prefill-0")
        await joined(plane, Role.DECODE, "decode-0")
        item, seats = member(plane, "decode-0"), Seats(1, 50)
        given = item.assign("r1", num_tokens=100, prefill_tokens=None, seats=seats)
        given.computed_by = member(plane, "prefill-0").key
        survey = survey_of(plane)

        async def stages() -> dict[str, int]:
            return {name: number for name, number in (await survey.take()).stages.items() if number}

        assert await stages() == {"prefill": 1}
        [link] = (await survey.take()).links
        assert (link.prefill, link.decode, link.num_prefill) == ("prefill-0", "decode-0", 1)
        given.prefilled()
        assert await stages() == {"transfer": 1}
        given.decoded()
        assert await stages() == {"decode": 1}
        given.release()
        assert await stages() == {}


async def test_a_prompt_that_the_decode_worker_computes_is_transferred_nowhere() -> None:
    async with lasting_plane() as plane:
        await joined(plane, Role.DECODE, "decode-0")
        item = member(plane, "decode-0")
        given = item.assign("r1", num_tokens=100, prefill_tokens=50, seats=Seats(1, 50))
        assert given.stage is RequestStage.PREFILL
        given.prefilled()
        assert given.stage is RequestStage.DECODE


async def test_a_pair_s_request_moves_its_kv_until_its_decode_worker_makes_a_token() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        await plane.store.join(prefill_member())
        asked = structs.replace(request(max_tokens=3), token_ids=list(range(40)))
        task = asyncio.create_task(collect(plane, asked))
        await until(lambda: bool(worker.submitted))
        item = member(plane, "decode-1")
        assert item.given["r1"].stage is RequestStage.PREFILL
        worker.send(tokens_frame("r1", 100))
        await until(lambda: item.given["r1"].stage is RequestStage.TRANSFER)
        worker.send(tokens_frame("r1", 101))
        await until(lambda: item.given["r1"].stage is RequestStage.DECODE)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_decision_says_what_was_foretold_and_what_came() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await collect(plane, request())
        decision = plane.decisions.find("r1")
        assert decision is not None
        row = decision_row(decision)
        assert (row.request_id, row.prefill, row.decode) == ("r1", "", "decode-1")
        assert row.prompt_tokens == 9 and row.next_ms is None and row.end == ""
        assert row.ttft_ms == pytest.approx(decision.timing.ttft_ms, abs=0.1)  # type: ignore[union-attr]
        assert sum(row.terms_ms.values()) == pytest.approx(row.total_ms, abs=0.5)


async def test_who_has_not_signed_in_is_told_no_name_of_a_tenant_or_a_request() -> None:
    async with lasting_plane() as plane:
        told = await survey_of(plane).take()
        queue = [QueueRow("acme", "batch", 2), QueueRow("globex", "batch", 1)]
        shown = msgspec.structs.replace(told, queue=queue).without_names()
        assert [row.tenant for row in shown.queue] == ["tenant 1", "tenant 2"]
        assert b"acme" not in msgspec.json.encode(shown)


class CountedShare(LoopShare):
    """Notes how many requests and workers were looked at between two breaths."""

    def __init__(self) -> None:
        super().__init__()
        self.num_breaths = 0

    async def breathe(self) -> None:
        self.num_breaths += 1
        await super().breathe()


async def test_a_large_fleet_is_looked_at_in_slices() -> None:
    """So many workers and requests; between two breaths a slice of them at most."""
    num_workers, num_requests = 500, 10_000
    share = CountedShare()
    async with lasting_plane() as plane:
        await crowd(plane, num_workers, num_requests)
        told = await survey_of(plane, share).take()
        assert told.num_workers == num_workers
        assert told.stages["prefill"] == num_requests
        assert share.num_breaths >= num_workers // SLICE_WORKERS + num_requests // SLICE_REQUESTS
        assert len(msgspec.json.encode(told)) < 200_000


async def test_of_more_workers_than_a_page_can_show_the_rest_is_counted() -> None:
    async with lasting_plane() as plane:
        await crowd(plane, MAX_WORKERS + 5, 0)
        told = await survey_of(plane).take()
        assert (len(told.workers), told.num_workers) == (MAX_WORKERS, MAX_WORKERS + 5)
        assert told.pools[0].workers + told.pools[1].workers == MAX_WORKERS + 5


async def crowd(plane: FleetPlane, num_workers: int, num_requests: int) -> None:
    """Half of them of each role; all requests of one pair's kind, and none computed."""
    for number in range(num_workers):
        role = Role.DECODE if number % 2 else Role.PREFILL
        await joined(plane, role, f"{role.value}-{number}", LOAD)
    decode = [item for item in plane.fleet.members if item.is_decode]
    prefill = [item for item in plane.fleet.members if not item.is_decode]
    for number in range(num_requests):
        item = decode[number % len(decode)]
        seats = Seats(1, 50)
        given = item.assign(f"r{number}", num_tokens=100, prefill_tokens=None, seats=seats)
        given.computed_by = prefill[number % 7].key


async def test_of_decisions_those_that_came_to_something_are_shown_before_those_that_run() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        await collect(plane, request("r0"))
        made = plane.decisions.find("r0")
        assert made is not None
        running = [structs.replace(made, request_id=f"run-{n}", usage=None) for n in range(40)]
        over = [structs.replace(made, request_id=f"over-{n}") for n in range(40)]
        names = [each.request_id for each in telling([*running, *over])]
        assert names == ["run-0", "run-1", "run-2", *(f"over-{n}" for n in range(MAX_OVER))]
        assert len(telling(running)) == MAX_DECISIONS
        assert len(telling(over[:2])) == 2
