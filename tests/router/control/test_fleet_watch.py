"""What operators see of a fleet that works: who is in flight and where, links, events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.dial.dialer import OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import InvalidRequest
from cluster.identity import WorkerKey
from cluster.membership.hold import HoldKind
from cluster.rpc import RpcServer
from protos import fleet_watch_pb2
from router.control.kv_links import KvLinks
from router.pricing.estimates import Estimates
from tests.router.fake_decode_worker import until
from tests.router.model_worker import Trouble, dies, says_nothing_more
from tests.router.planes import Words, prefill_member
from tests.router.streams_bench import KINDS, Bench, bench

HELD = Trouble(5, says_nothing_more)
SILENT = Trouble(0, says_nothing_more)
LIMIT_S = 5.0


@asynccontextmanager
async def watched(
    num_workers: int = 1, **options: int
) -> AsyncIterator[tuple[Bench, OperatorLink]]:
    """A router, and the way of an operator to it."""
    async with bench(num_workers, **options) as here:
        server = RpcServer("127.0.0.1", 0)
        here.plane.register(server, Words())
        link = GrpcDialer().operator(f"127.0.0.1:{await server.start()}")
        try:
            yield here, link
        finally:
            await link.close()
            await server.stop(0)


async def seen(link: OperatorLink, **asked: object) -> list[fleet_watch_pb2.InFlight]:
    request = fleet_watch_pb2.RequestsRequest(**asked)  # type: ignore[arg-type]
    return list((await link.requests(request, timeout_s=LIMIT_S)).requests)


async def happened(link: OperatorLink) -> list[tuple[str, str]]:
    answer = await link.events(fleet_watch_pb2.EventsRequest(), timeout_s=LIMIT_S)
    return [(each.kind, each.subject) for each in answer.events]


def asking(here: Bench, name: str, trouble: Trouble) -> asyncio.Task[object]:
    return asyncio.create_task(here.ask(name, KINDS["one choice"], trouble))  # type: ignore[arg-type]


def tokens_of(here: Bench) -> list[int]:
    """Of each request in flight, that its client has."""
    taken = here.plane.source.in_flight.in_order(newest_first=False)
    return [each.num_answer_tokens for each in taken]


def say_the_rest(here: Bench, name: str, after: int) -> None:
    [worker] = here.workers
    [submit] = [each for each in worker.submitted if each.request_id == name]
    for frame in [*worker.frames_of(submit)][after:]:
        worker.send(frame)


async def test_a_request_is_seen_in_each_of_its_stages_and_no_more_when_it_is_over() -> None:
    async with watched(max_running_requests=1) as (here, link):
        first, second = asking(here, "r1", SILENT), asking(here, "r2", HELD)
        await until(
            lambda: bool(here.workers[0].submitted) and len(here.plane.source.in_flight) == 2
        )
        prefill, queued = await seen(link)
        assert (prefill.request_id, prefill.stage, queued.stage) == ("r1", "prefill", "queued")
        assert (prefill.decode_worker, queued.decode_worker) == ("decode-0", "")
        assert prefill.prompt_tokens > 0 and prefill.answer_tokens == 0
        assert 0 < prefill.deadline_s <= 60
        say_the_rest(here, "r1", 0)
        await first
        await until(lambda: tokens_of(here) == [HELD.after])
        [decoding] = await seen(link)
        assert (decoding.request_id, decoding.stage) == ("r2", "decode")
        assert decoding.answer_tokens == 5 and 0 < decoding.deadline_s <= 60
        say_the_rest(here, "r2", HELD.after)
        await second
        assert await seen(link) == []


async def test_a_pair_transfers_until_the_decode_worker_has_made_a_token_itself() -> None:
    async with watched() as (here, link):
        await here.plane.store.join(prefill_member())
        asked = asyncio.create_task(here.ask("r1", KINDS["one choice"], SILENT))
        await until(lambda: bool(here.workers[0].submitted))
        [submit] = here.workers[0].submitted
        [request] = await seen(link)
        pair = [target.worker_id for target in submit.prefill]
        assert request.prefill_worker == (pair[0] if pair else "")
        frames = [*here.workers[0].frames_of(submit)]
        here.workers[0].send(frames[0])
        [taken] = here.plane.source.in_flight.in_order(newest_first=False)
        await until(lambda: taken.stage != "prefill")
        [request] = await seen(link)
        assert request.stage == ("transfer" if pair else "decode")
        for frame in frames[1:]:
            here.workers[0].send(frame)
        await asked


async def test_requests_are_asked_for_by_what_is_true_of_them_and_answers_are_bounded() -> None:
    async with watched() as (here, link):
        names = [f"r{number}" for number in range(5)]
        asked = [asking(here, name, HELD) for name in names]
        await until(lambda: tokens_of(here) == 5 * [HELD.after])
        order = [each.request_id for each in await seen(link)]
        assert sorted(order) == names
        newest = [each.request_id for each in await seen(link, newest_first=True)]
        assert newest == order[::-1]
        assert len(await seen(link, worker_id="decode-0", stage="decode", limit=2)) == 2
        for nobody in (
            {"worker_id": "decode-9"}, {"stage": "queued"}, {"tenant": "acme"},
            {"older_than_s": 1000.0}, {"request_id": "r"},
        ):  # fmt: skip
            assert await seen(link, **nobody) == []
        with pytest.raises(InvalidRequest, match="queued, prefill, transfer, decode"):
            await seen(link, stage="decoding")
        [one] = await seen(link, request_id="r3")
        assert one.request_id == "r3"
        bounded = await link.requests(fleet_watch_pb2.RequestsRequest(limit=2), timeout_s=LIMIT_S)
        assert (len(bounded.requests), bounded.has_more, bounded.num_in_flight) == (2, True, 5)
        whole = await link.requests(fleet_watch_pb2.RequestsRequest(limit=5), timeout_s=LIMIT_S)
        assert (len(whole.requests), whole.has_more) == (5, False)
        for name in names:
            say_the_rest(here, name, HELD.after)
        await asyncio.gather(*asked)


async def test_what_befalls_a_fleet_is_told_in_its_order() -> None:
    async with watched(2) as (here, link):
        await here.ask("r1", KINDS["one choice"], Trouble(5, dies))
        lost = next(
            worker for worker in here.workers if worker.num_sessions > 1 or worker.submitted
        )
        kinds = await happened(link)
        assert kinds[:2] == [("joined", "decode-0"), ("joined", "decode-1")]
        names = {kind for kind, _ in kinds[2:]}
        assert {"lost", "moved", "rested"} <= names
        here.plane.fleet.holds.order(lost.worker_id, HoldKind.DRAIN)
        here.plane.fleet.holds.order(lost.worker_id, HoldKind.NONE)
        await here.plane.store.leave(lost.member().key)
        ends = [
            ("draining", lost.worker_id),
            ("uncordoned", lost.worker_id),
            ("left", lost.worker_id),
        ]
        assert [each for each in await happened(link) if each in ends] == ends


async def test_the_last_seconds_are_told_with_queues_by_class() -> None:
    async with watched() as (here, link):
        await here.ask("r1", KINDS["one choice"])
        said = await link.lately(timeout_s=LIMIT_S)
        assert [each.priority for each in said.classes] == ["interactive", "standard", "batch"]
        assert (said.num_finished, said.num_in_flight) == (1, 0)
        stages = {each.stage: each for each in said.stages}
        assert list(stages) == ["ttft", "queue", "prefill", "kv", "decode", "itl"]
        assert stages["ttft"].count == 1 and stages["ttft"].p95_ms > 0
        assert said.completion_tokens > 0


async def test_links_are_told_with_what_went_over_them_and_their_price() -> None:
    async with watched(2) as (here, link):
        plane = here.plane
        await plane.store.join(prefill_member("prefill-0"))
        estimates = Estimates()
        source, reader = WorkerKey("prefill-0", "i1"), WorkerKey("decode-1", "i1")
        estimates.link_totals.add((source, reader), 1000)
        estimates.links.add((source, reader), 1000, 0.001)
        links = sorted(KvLinks(plane.fleet, estimates), key=lambda each: each.decode_worker)
        assert [each.decode_worker for each in links] == ["decode-0", "decode-1"]
        assert (links[1].num_transfers, links[1].num_bytes) == (1, 1000)
        assert links[1].bytes_per_s == 1e6 and not links[0].HasField("bytes_per_s")
        told = await link.links(fleet_watch_pb2.LinksRequest(limit=1), timeout_s=LIMIT_S)
        assert (len(told.links), told.has_more) == (1, True)
        assert told.bytes_per_s > 0
