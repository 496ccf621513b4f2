"""Prompts that prefill workers answer by themselves: real admission, routing and gRPC, over engines
that say what they are told."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random
from zlib import crc32

import pytest
from msgspec import structs

from cluster.adapter import Adapter, OfferedAdapter
from cluster.block_hash import cache_root
from cluster.errors import DeadlineExceeded, NoWorker, QueueFull, RequestGivenUp, WorkerLost
from cluster.generation import EngineLoad, Usage
from cluster.identity import Role, WorkerKey, owner_of
from cluster.membership.member import Member
from cluster.models.pooling import Pooling, PoolingKind
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from cluster.world import World
from engine.contract.commands import Cancel, Submit
from engine.contract.messages import Frame, Pooled, RequestEnded, Started
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.stream import ChoiceTokens, Completed, PoolWish, RoutedRequest, StreamEvent
from router.fleet import fleet
from router.front.generation_request import TokenPrompt
from router.front.one_version import again
from router.front.pipeline import CompletionPipeline
from router.front.pooled_prompts import PooledPrompts, PooledRequest
from router.pricing.route import RouteReason
from router.tenants.account import Account
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.kept_spans import KeptSpans
from tests.prefill_worker.prefill_bench import PAIRING, Bench, running_prefill_worker
from tests.router.dispatch.test_traced_requests import trace_in
from tests.router.dispatch_bench import outcome, request, time_limits
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.front.test_spending import LIMITS, Ledger
from tests.router.front_fakes import pooling_model
from tests.router.planes import running_plane

LAST = "last"
EMBEDS = Pooling(kind=PoolingKind.LAST, generates=True, dimensions=())
PROMPT = list(range(1, 10))


def wanted(name: str = "r1", timeout_s: float = 30.0, pooling: str = LAST) -> RoutedRequest:
    first = crc32(name.encode()) % 100_000
    return RoutedRequest(
        request_id=name,
        token_ids=[first + token_id for token_id in PROMPT],
        sampling=SamplingParams(max_tokens=0),
        limits=time_limits(timeout_s),
        pool=PoolWish(pooling),
    )


@dataclass
class Pooler:
    """A prefill worker whose engine answers at once, unless it holds."""

    bench: Bench
    member: Member
    holds: bool = False
    num_answered: int = 0

    async def answer(self) -> None:
        while True:
            submit = await self.bench.link.wait_for(Submit, self.num_answered + 1)
            while self.holds:
                await asyncio.sleep(0)
            self.num_answered += 1
            self.say(submit.request.request_id, len(submit.request.token_ids))

    def say(self, engine_id: str, num_tokens: int) -> None:
        values = struct.pack("<2f", 0.6, 0.8)
        ended = RequestEnded(
            request_id=engine_id, usage=Usage(num_tokens, 0, 4), queue_ms=1.0, prefill_ms=5.0
        )
        self.bench.link.say(Frame(started=[Started(engine_id, 4, 1.0)]))
        self.bench.link.say(Frame(pooled=[Pooled(engine_id, values)], ended=[ended]))


@asynccontextmanager
async def fleet_of(
    *names: str, pooling: str = LAST, **options: int
) -> AsyncIterator[tuple[FleetPlane, list[Pooler]]]:
    async with AsyncExitStack() as stack:
        world = World(chance=Random(1))
        given = {"worker_lease_s": 60} | options  # nobody beats here
        plane = await stack.enter_async_context(
            running_plane(OwnModel(pooling=pooling), world, **given)
        )
        poolers, tasks = [], []
        for name in names:
            key = WorkerKey(name, f"incarnation-of-{name}")
            bench = await stack.enter_async_context(running_prefill_worker(key, pooling=pooling))
            member = Member(
                worker_id=key.worker_id,
                incarnation=key.incarnation,
                role=Role.PREFILL,
                address=bench.address,
                pairing=PAIRING,
                model="m",
                max_context_tokens=100,
                max_num_seqs=4,
                pooling=pooling,
            )
            poolers.append(Pooler(bench, member))
            tasks.append(asyncio.create_task(poolers[-1].answer()))
            await plane.store.join(member)
        try:
            yield plane, poolers
        finally:
            for task in tasks:
                task.cancel()


async def collect(plane: FleetPlane, asked: RoutedRequest) -> list[StreamEvent]:
    async with aclosing(plane.source.generate(asked)) as events:
        return [event async for event in events]


def is_idle(plane: FleetPlane) -> bool:
    lines = (plane.lines.tokens, plane.lines.pooled)
    return all(
        line is not None and (line.num_running, line.num_unused, line.num_queued) == (0, 0, 0)
        for line in lines
    ) and all(
        (item.num_in_flight, item.pending_prefill_tokens, item.room.promised_seqs) == (0, 0, 0)
        and item.prompts.num_turns == 0
        for item in plane.fleet.members
    )


async def test_a_fleet_of_prefill_workers_is_ready_and_answers() -> None:
    async with fleet_of("a") as (plane, _):
        assert plane.why_not_ready() is None
        pooled, end = await collect(plane, wanted())
        assert isinstance(pooled, ChoiceTokens) and isinstance(end, Completed)
        assert pooled.pooled == struct.pack("<2f", 0.6, 0.8)
        assert end.usage == Usage(len(PROMPT), 0, 4)
        assert end.timing.prefill_worker == "a" and end.timing.prefill_ms > 0
        assert is_idle(plane)
        assert outcome(plane, "ok") == 1


async def test_it_is_explained_as_any_other() -> None:
    async with fleet_of("a", "b") as (plane, _):
        await collect(plane, wanted())
        decision = plane.decisions.find("r1")
        assert decision is not None and decision.usage is not None
        assert decision.route.reason is RouteReason.POOLED
        assert {each.decode.worker_id for each in decision.route.candidates} == {"a", "b"}


async def test_nobody_waits_for_a_decode_worker_but_who_wants_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    async with fleet_of("a") as (plane, _):
        with pytest.raises(NoWorker, match="no decode worker has joined"):
            await collect(plane, request())
        await collect(plane, wanted("r2"))


async def test_workers_that_pool_otherwise_get_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    async with fleet_of("a") as (plane, poolers):
        with pytest.raises(NoWorker, match="no prefill worker with --pooling mean"):
            await collect(plane, wanted(pooling="mean"))
        assert poolers[0].bench.link.told(Submit) == []


async def test_an_engine_that_dies_costs_a_second_attempt() -> None:
    async with fleet_of("a", "b") as (plane, poolers):
        for each in poolers:
            each.holds = True
        task = asyncio.create_task(collect(plane, wanted()))
        await until(lambda: any(p.bench.link.told(Submit) for p in poolers))
        first = next(p for p in poolers if p.bench.link.told(Submit))
        first.bench.link.die("signal SIGKILL")
        for each in poolers:
            each.holds = False
        events = await task
        assert isinstance(events[0], ChoiceTokens) and events[0].pooled is not None
        assert isinstance(events[-1], Completed)
        assert events[-1].timing.prefill_worker != first.member.worker_id
        assert is_idle(plane)


async def test_a_prompt_that_kills_two_engines_is_given_up() -> None:
    async with fleet_of("a", "b", "c") as (plane, poolers):
        for each in poolers:
            each.holds = True
        task = asyncio.create_task(collect(plane, wanted()))
        for num_dead in (1, 2):
            await until(lambda n=num_dead: sum(bool(_asked(p)) for p in poolers) == n)
            for each in poolers:
                if _asked(each) and not each.bench.link.died.done():
                    each.bench.link.die("signal SIGSEGV")
        with pytest.raises(RequestGivenUp):
            await task
        assert sum(bool(_asked(p)) for p in poolers) == 2
        assert is_idle(plane)


async def test_a_worker_that_has_left_ends_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    async with fleet_of("a") as (plane, poolers):
        poolers[0].holds = True
        task = asyncio.create_task(collect(plane, wanted()))
        await until(lambda: bool(_asked(poolers[0])))
        await plane.store.leave(poolers[0].member.key)
        with pytest.raises(WorkerLost):
            await task
        assert is_idle(plane)


async def test_a_client_that_leaves_ends_the_work_at_its_worker() -> None:
    async with fleet_of("a") as (plane, poolers):
        poolers[0].holds = True
        task = asyncio.create_task(collect(plane, wanted()))
        submit = await poolers[0].bench.link.wait_for(Submit)
        task.cancel()
        cancelled = await poolers[0].bench.link.wait_for(Cancel)
        assert cancelled.request_id == submit.request.request_id
        await until(lambda: is_idle(plane))
        assert outcome(plane, "cancelled") == 1


async def test_a_deadline_ends_it_on_both_sides() -> None:
    async with fleet_of("a") as (plane, poolers):
        poolers[0].holds = True
        with pytest.raises(DeadlineExceeded):
            await collect(plane, wanted(timeout_s=0.3))
        await poolers[0].bench.link.wait_for(Cancel)
        assert is_idle(plane)


async def test_they_wait_for_places_in_a_line_of_their_own() -> None:
    decode = FakeDecodeWorker(answer_at_once=True)
    options = {"max_running_requests": 1, "max_queued_requests": 1}
    async with decode, fleet_of("a", **options) as (plane, poolers):
        await plane.store.join(decode.member())
        await until(lambda: bool(plane.fleet.ready(Role.DECODE)))
        poolers[0].holds = True
        tasks = [asyncio.create_task(collect(plane, wanted("r1")))]
        await until(lambda: bool(_asked(poolers[0])))
        tasks.append(asyncio.create_task(collect(plane, wanted("r2"))))
        line = plane.lines.pooled
        assert line is not None
        await until(lambda: line.num_queued == 1)
        with pytest.raises(QueueFull):
            await collect(plane, wanted("r3"))
        await collect(plane, request("text"))  # a decode worker's line is empty
        poolers[0].holds = False
        await asyncio.gather(*tasks)
        assert is_idle(plane)


async def test_answers_are_as_long_as_they_were_before_prompts_were_pooled() -> None:
    async with fleet_of("a") as (plane, _):
        before = plane.estimates.completion_tokens
        await collect(plane, wanted())
        assert plane.estimates.completion_tokens == before


async def test_the_next_prompt_goes_where_its_beginning_is_cached() -> None:
    async with fleet_of("a", "b", "c") as (plane, _):
        ends = [(await collect(plane, wanted()))[-1] for _ in range(4)]
        workers = {end.timing.prefill_worker for end in ends if isinstance(end, Completed)}
        assert len(workers) == 1


async def test_a_prompt_goes_to_the_worker_that_has_its_adapter_and_its_digest_goes_along() -> None:
    one = Adapter("one", "a" * 32)
    async with fleet_of("a", "b") as (plane, poolers):
        await _tells(plane, poolers[1].member, one)
        assert (plane.adapters.find_pooling("one"), plane.adapters.find("one")) == (one, None)
        assert plane.adapters.all() == [one]
        for turn in range(4):
            await collect(plane, structs.replace(wanted(f"r{turn}"), adapter=one, tenant="acme"))
        assert [len(_asked(each)) for each in poolers] == [0, 4]
        body = _asked(poolers[1])[0].request
        assert (body.adapter, body.owner) == (one.digest, owner_of("acme"))
        assert body.cache_root == cache_root(PAIRING.key, "", one.digest)


async def test_where_no_worker_that_pools_has_the_adapter_nobody_gets_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "NO_WORKER_GRACE_S", 0.05)
    async with fleet_of("a") as (plane, poolers):
        with pytest.raises(NoWorker, match="no prefill worker that takes new work has the adapter"):
            await collect(plane, structs.replace(wanted(), adapter=Adapter("one", "a" * 32)))
        assert _asked(poolers[0]) == []


async def test_what_decode_workers_have_by_a_name_is_no_matter_of_a_pooled_prompt() -> None:
    one, newer = Adapter("one", "a" * 32), Adapter("one", "b" * 32)
    async with fleet_of("a") as (plane, poolers), FakeDecodeWorker() as decode:
        await plane.store.join(decode.member())
        await _tells(plane, poolers[0].member, one)
        await _tells(plane, decode.member(), newer)
        await until(lambda: plane.adapters.find("one") == newer)
        await collect(plane, structs.replace(wanted("r1"), adapter=one))
        await plane.store.leave(decode.member().key)
        assert (plane.adapters.find("one"), plane.adapters.offered("one")) == (newer, None)
        await collect(plane, structs.replace(wanted("r2"), adapter=one))
        assert [each.request.adapter for each in _asked(poolers[0])] == [one.digest] * 2


async def test_a_prompt_is_pooled_by_what_its_adapters_name_stands_for_when_it_is_sent() -> None:
    one, newer = Adapter("one", "a" * 32), Adapter("one", "b" * 32)
    async with fleet_of("a") as (plane, poolers):
        await _tells(plane, poolers[0].member, newer)
        await collect(plane, structs.replace(wanted(), adapter=one))
        assert [each.request.adapter for each in _asked(poolers[0])] == [newer.digest]


async def test_a_name_whose_workers_that_pool_have_left_is_still_a_model() -> None:
    one = Adapter("one", "a" * 32)
    async with fleet_of("a", "b") as (plane, poolers):
        await _tells(plane, poolers[0].member, one)
        assert plane.adapters.all() == [one]
        await plane.store.leave(poolers[0].member.key)
        assert plane.adapters.find_pooling("one") == one
        assert plane.adapters.offered("one", is_pooled=True) is None
        assert (plane.adapters.find("one"), plane.adapters.all()) == (None, [one])


async def _tells(plane: FleetPlane, member: Member, adapter: Adapter) -> None:
    """The worker's next beat."""
    told = (OfferedAdapter(adapter, True),)
    assert await plane.store.beat(member.key, EngineLoad(), draining=False, adapters=told)


def _asked(pooler: Pooler) -> list[Submit]:
    return pooler.bench.link.told(Submit)


async def test_inputs_that_follow_one_wait_in_a_full_line_and_are_explained_by_it() -> None:
    async with fleet_of("a", max_running_requests=1, max_queued_requests=1) as (plane, poolers):
        poolers[0].holds = True
        first = asyncio.create_task(collect(plane, structs.replace(wanted("r-0"), num_inputs=9)))
        line = plane.lines.pooled
        assert line is not None
        await until(lambda: line.num_running == 1)
        waiting = asyncio.create_task(collect(plane, wanted("other")))
        await until(lambda: line.num_queued == 1)
        followers = [structs.replace(wanted(f"r-{i}"), follows="r-0") for i in range(1, 9)]
        tasks = [asyncio.create_task(collect(plane, each)) for each in followers]
        await until(lambda: line.num_queued == 9)
        with pytest.raises(QueueFull):
            await collect(plane, wanted("late"))
        poolers[0].holds = False
        await asyncio.gather(first, waiting, *tasks)
        kept = {each.request_id for each in plane.decisions.newest(100)}
        assert kept == {"r-0", "other"}
        decision = plane.decisions.find("r-0")
        assert decision is not None
        assert any("the first of 9 inputs" in each for each in decision.notes)
        assert plane.decisions.arrival_of("r-1") is None
        assert is_idle(plane) and outcome(plane, "ok") == 10


async def test_the_entry_of_several_inputs_names_every_version_that_computed_one() -> None:
    one, newer = Adapter("one", "a" * 32), Adapter("one", "b" * 32)
    async with fleet_of("a") as (plane, poolers):
        await _tells(plane, poolers[0].member, one)
        inputs = [structs.replace(wanted("r-0"), num_inputs=3, adapter=one)]
        inputs += [structs.replace(wanted(f"r-{i}"), follows="r-0", adapter=one) for i in (1, 2)]
        for each in inputs[:2]:
            await collect(plane, each)
        assert _versions(plane, "r-0") == [one.digest]
        await _tells(plane, poolers[0].member, newer)
        await collect(plane, inputs[2])
        for each in inputs[:2]:
            await collect(plane, again(each, 1))
        assert _versions(plane, "r-0") == [one.digest, newer.digest]
        kept = {each.request_id for each in plane.decisions.newest(100)}
        assert kept == {"r-0"}


async def test_the_last_version_named_is_the_answers_whichever_input_was_sent_first() -> None:
    one, newer = Adapter("one", "a" * 32), Adapter("one", "b" * 32)
    first = structs.replace(wanted("r-0"), num_inputs=2, adapter=one)
    other = structs.replace(wanted("r-1"), follows="r-0", adapter=one)
    async with fleet_of("a") as (plane, poolers):
        await _tells(plane, poolers[0].member, one)
        await collect(plane, other)
        await _tells(plane, poolers[0].member, newer)
        await collect(plane, first)
        assert _versions(plane, "r-0") == [one.digest, newer.digest]
        await _tells(plane, poolers[0].member, one)
        await collect(plane, again(first, 1))
        assert _versions(plane, "r-0") == [newer.digest, one.digest]
        await collect(plane, first)  # as one that goes on elsewhere
        assert _versions(plane, "r-0") == [newer.digest, one.digest]


def _versions(plane: FleetPlane, request_id: str) -> list[str]:
    decision = plane.decisions.find(request_id)
    assert decision is not None
    by_adapter = [note for note in decision.notes if note.startswith("computed by adapter one")]
    return [note.rpartition("(")[2].rstrip(")") for note in by_adapter]


async def test_inputs_that_only_waited_are_not_charged() -> None:
    """Whatever ends them: here a client that leaves."""
    model, ledger, num_inputs = pooling_model(EMBEDS), Ledger(), 8
    async with fleet_of("a", max_running_requests=2) as (plane, poolers):
        poolers[0].holds = True
        pipeline = CompletionPipeline(model, plane.source, InProcessText(model))
        prompts = PooledPrompts(model, pipeline)
        asked = PooledRequest(
            request_id="r",
            tenant=Tenant("a", account=Account(LIMITS, ledger)),
            prompts=[TokenPrompt(PROMPT) for _ in range(num_inputs)],
            limits=time_limits(30.0),
        )
        run = asyncio.create_task(prompts.pooled(await prompts.prepare(asked)))
        line = plane.lines.pooled
        assert line is not None
        await until(lambda: len(_asked(poolers[0])) + line.num_queued == num_inputs)
        num_sent = len(_asked(poolers[0]))
        assert 0 < num_sent < num_inputs
        await cancel([run])
        assert ledger.prompt_and_answer == (num_sent * len(PROMPT), 0)
        poolers[0].holds = False
        await until(lambda: is_idle(plane))


async def test_the_trace_of_an_input_that_follows_and_fails_says_where_it_went() -> None:
    kept = KeptSpans()
    async with fleet_of("a") as (plane, poolers):
        poolers[0].holds = True
        follower = structs.replace(wanted("r-1"), follows="r-0", trace=trace_in(kept))
        run = asyncio.create_task(collect(plane, follower))
        await until(lambda: bool(_asked(poolers[0])))
        await cancel([run])
        poolers[0].holds = False
        await until(lambda: is_idle(plane))
    whole = kept.one("chat tiny")
    assert whole.attributes["splitserve.decode_worker"] == "a"


async def test_the_entry_of_several_inputs_ends_with_the_last_of_them() -> None:
    async with fleet_of("a") as (plane, poolers):
        await collect(plane, structs.replace(wanted("r-0"), num_inputs=2))
        arrival = plane.decisions.arrival_of("r-0")
        assert arrival is not None and arrival.course.ended_s is not None
        before_s = arrival.course.ended_s
        await collect(plane, structs.replace(wanted("r-1"), follows="r-0"))
        assert arrival.course.ended_s > before_s
