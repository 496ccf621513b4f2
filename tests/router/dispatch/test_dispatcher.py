"""Requests from end to end, over real gRPC, with fake workers."""

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CachedBlock
from cluster.errors import (
    ContextTooLong,
    DeadlineExceeded,
    NoWorker,
    QueueFull,
    SplitserveError,
    WorkerLost,
)
from cluster.generation import EngineLoad, FinishReason, GeneratedToken
from cluster.identity import Role
from cluster.retry_after import DEFAULT_RETRY_AFTER_S, no_jitter, retry_after_s
from router.control.decision_message import decision_to_wire
from router.dispatch.stream import ChoiceTokens, Completed
from router.fleet import fleet as fleet_module
from tests.router.dispatch_bench import PROMPT, collect, is_idle, outcome, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    error_frame,
    tokens_frame,
    until,
)
from tests.router.planes import PAIRING, prefill_member


async def test_a_request_streams_its_tokens_and_completes_with_usage_and_timing() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        events = await collect(plane, request())
        [tokens, completed] = events
        expected = [GeneratedToken(100), GeneratedToken(101)]
        assert tokens == ChoiceTokens(0, expected, FinishReason.LENGTH)
        assert isinstance(completed, Completed)
        assert (completed.usage.prompt_tokens, completed.usage.completion_tokens) == (9, 2)
        timing = completed.timing
        stages = timing.queue_ms + timing.prefill_ms + timing.kv_ms + timing.decode_ms
        assert timing.ttft_ms == pytest.approx(stages)
        [submit] = worker.submitted
        assert list(submit.token_ids) == PROMPT
        assert submit.cache_root == cache_root(PAIRING.key)
        assert (submit.sampling.seed, submit.sampling.max_tokens) == (7, 2)
        assert 0 < submit.timeout_ms <= 30_000
        assert submit.asked_s == 30.0
        assert outcome(plane, "ok") == 1
        assert is_idle(plane)


async def test_the_prefill_worker_is_proposed_and_what_it_did_is_explained() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"prefill_ms": 1.0, "prefill_worker": "prefill-1", "kv_bytes": 64}
    async with router(worker) as plane:
        await plane.store.join(prefill_member())
        await plane.store.join(
            prefill_member("prefill-2", pairing=replace(PAIRING, weights_digest="zz"))
        )
        await collect(plane, structs.replace(request(), token_ids=list(range(40))))
        [target] = worker.submitted[0].prefill
        assert (target.worker_id, target.incarnation) == ("prefill-1", "i1")
        assert target.address == "127.0.0.1:9"
        decision = plane.decisions.find("r1")
        assert decision is not None
        told = decision_to_wire(decision)
        [chosen] = [item for item in told.candidates if item.chosen]
        assert (chosen.prefill_worker, chosen.decode_worker) == ("prefill-1", "decode-1")
        assert "weights_digest is 'zz' there and 'aa' here" in told.notes[0]
        assert told.timing.prefill_worker == "prefill-1"
        assert is_idle(plane)


async def test_the_same_prompt_again_goes_where_it_is_cached() -> None:
    workers = [FakeDecodeWorker(f"decode-{i}", answer_at_once=True) for i in range(3)]
    async with router(*workers) as plane:
        for worker in workers:
            pub, replay = await worker.start_events()
            await plane.store.join(
                worker.member(incarnation="i2", kv_events_address=pub, kv_replay_address=replay)
            )
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 3)
        asked = structs.replace(request(), token_ids=list(range(400)))
        for number in range(4):
            await collect(plane, structs.replace(asked, request_id=f"r{number}"))
        assert sorted(len(worker.submitted) for worker in workers) == [0, 0, 4]
        await collect(
            plane, structs.replace(asked, request_id="other", tenant_salt="another tenant")
        )
        decision = plane.decisions.find("other")
        assert decision is not None
        assert [item.matched_tokens for item in decision.view.decode] == [0, 0, 0]


@pytest.mark.parametrize("made, expected_blocks", [(1, 0), (2, 10)])
async def test_a_decode_worker_that_ended_with_the_first_token_is_not_believed_to_have_the_prompt(
    made: int, expected_blocks: int
) -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    worker.timing = {"prefill_worker": "prefill-1"}
    async with router(worker) as plane:
        pub, replay = await worker.start_events()
        addresses = {"kv_events_address": pub, "kv_replay_address": replay}
        await plane.store.join(worker.member(incarnation="i2", **addresses))
        await plane.store.join(prefill_member(**addresses))
        await until(lambda: plane.fleet.why_not_ready() is None)
        asked = structs.replace(request(max_tokens=made), token_ids=list(range(40)))
        await collect(plane, asked)
        keys = {item.key.worker_id: item.key for item in plane.fleet.members}
        assert plane.index.num_blocks_of(keys["prefill-1"]) == 10
        assert plane.index.num_blocks_of(keys["decode-1"]) == expected_blocks


async def test_what_a_worker_had_before_the_router_came_is_known_from_its_snapshot() -> None:
    workers = [FakeDecodeWorker(f"decode-{i}", answer_at_once=True) for i in range(3)]
    prompt = list(range(400))
    names = chain_names(pack_tokens(prompt), parent=cache_root(PAIRING.key), block_size_tokens=4)
    parents = [None, *names]
    workers[2].live = [
        CachedBlock(name, parents[i], prompt[i * 4 : i * 4 + 4]) for i, name in enumerate(names)
    ]
    async with workers[2], router(*workers[:2]) as plane:
        pub, replay = await workers[2].start_events()
        member = workers[2].member(kv_events_address=pub, kv_replay_address=replay)
        await plane.store.join(member)
        await until(lambda: plane.index.num_blocks_of(member.key) == 100)
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 3)
        await collect(plane, structs.replace(request(), token_ids=prompt))
        assert len(workers[2].submitted) == 1
        await plane.store.leave(member.key)
        assert plane.index.num_blocks_of(member.key) == 0
        await until(lambda: plane.index.num_blocks == 0)


async def test_a_client_that_leaves_cancels_at_the_worker_and_leaves_nothing_behind() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        events = plane.source.generate(request(max_tokens=50))
        worker.send(tokens_frame("r1", 5))
        task = asyncio.ensure_future(anext(events))
        await until(lambda: len(worker.submitted) == 1)
        worker.send(tokens_frame("r1", 5))
        await task
        await events.aclose()
        await until(lambda: worker.cancelled == ["r1"])
        assert is_idle(plane)
        assert outcome(plane, "cancelled") == 1


async def test_a_client_that_reads_slowly_keeps_no_place_once_its_worker_has_ended() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker, max_running_requests=1, max_queued_requests=1) as plane:
        slow = plane.source.generate(request("slow"))
        first = await anext(slow)
        await until(lambda: is_idle(plane))
        assert isinstance((await collect(plane, request("quick")))[-1], Completed)
        assert isinstance(first, ChoiceTokens)
        assert isinstance(await anext(slow), Completed)


async def test_a_task_that_is_cancelled_while_it_waits_for_tokens_cancels_too() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        task = asyncio.create_task(collect(plane, request()))
        await until(lambda: len(worker.submitted) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: worker.cancelled == ["r1"])
        assert is_idle(plane)


async def test_an_error_of_the_worker_is_the_requests_error() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        task = asyncio.create_task(collect(plane, request()))
        await until(lambda: len(worker.submitted) == 1)
        worker.send(error_frame("r1", "kv_transfer_failed", "digest of block 3"))
        with pytest.raises(SplitserveError, match="block 3"):
            await task
        assert outcome(plane, "kv_transfer_failed") == 1
        assert is_idle(plane)


async def test_a_deadline_ends_a_request_that_the_worker_sits_on() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        with pytest.raises(DeadlineExceeded, match=r"0\.2 s"):
            await collect(plane, request(timeout_s=0.2))
        await until(lambda: worker.cancelled == ["r1"])
        assert is_idle(plane)


async def test_a_lost_worker_ends_an_answer_that_may_not_go_on_with_an_error_in_time() -> None:
    workers = [FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1")]
    async with router(*workers, continue_streams=False) as plane:
        events = plane.source.generate(request(max_tokens=50))
        first = asyncio.ensure_future(anext(events))
        await until(lambda: any(worker.submitted for worker in workers))
        chosen = next(worker for worker in workers if worker.submitted)
        chosen.send(tokens_frame("r1", 5))
        await first
        await chosen.stop()
        with pytest.raises(WorkerLost, match=chosen.worker_id):
            async with asyncio.timeout(20.0):
                await anext(events)
        assert sum(len(worker.submitted) for worker in workers) == 1
        assert is_idle(plane)


async def test_a_worker_lost_before_any_token_is_replaced_by_another() -> None:
    workers = [FakeDecodeWorker("decode-0"), FakeDecodeWorker("decode-1")]
    async with router(*workers) as plane:
        task = asyncio.create_task(collect(plane, request()))
        await until(lambda: any(worker.submitted for worker in workers))
        first = next(worker for worker in workers if worker.submitted)
        second = next(worker for worker in workers if not worker.submitted)
        await first.stop()
        await until(lambda: bool(second.submitted))
        second.send(tokens_frame("r1", 5, 6, last=True))
        second.send(ended_frame("r1", made=2))
        events = await task
        assert isinstance(events[-1], Completed)
        assert is_idle(plane)


async def test_a_worker_that_began_to_drain_in_that_moment_is_replaced_by_another() -> None:
    one, two = FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")
    async with router(one, two) as plane:
        task = asyncio.create_task(collect(plane, request()))
        await until(lambda: bool(one.submitted or two.submitted))
        first, second = (one, two) if one.submitted else (two, one)
        first.send(error_frame("r1", "draining", "this worker is draining"))
        await until(lambda: bool(second.submitted))
        second.send(tokens_frame("r1", 4, 5, last=True))
        second.send(ended_frame("r1", made=2))
        events = await task
    assert isinstance(events[-1], Completed)


async def test_the_only_worker_lost_is_an_error_once_no_other_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "NO_WORKER_GRACE_S", 0.05)
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        task = asyncio.create_task(collect(plane, request()))
        await until(lambda: len(worker.submitted) == 1)
        await worker.stop()
        with pytest.raises(WorkerLost):
            async with asyncio.timeout(20.0):
                await task


async def test_no_worker_within_the_grace_is_a_503_with_a_time_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "NO_WORKER_GRACE_S", 0.05)
    async with router() as plane:
        with pytest.raises(NoWorker, match="no decode worker has joined") as caught:
            await collect(plane, request())
        assert retry_after_s(caught.value, no_jitter) == DEFAULT_RETRY_AFTER_S
        assert plane.why_not_ready() == "no decode worker has joined"


async def test_a_worker_that_joins_within_the_grace_serves_the_request() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router() as plane:
        task = asyncio.create_task(collect(plane, request()))
        async with worker:
            await plane.store.join(worker.member())
            assert isinstance((await task)[-1], Completed)


async def test_a_draining_worker_gets_no_new_work() -> None:
    workers = [FakeDecodeWorker(f"decode-{i}", answer_at_once=True) for i in range(2)]
    async with router(*workers) as plane:
        await plane.store.beat(workers[0].member().key, EngineLoad(), draining=True)
        for number in range(4):
            await collect(plane, request(f"r{number}"))
        assert [len(worker.submitted) for worker in workers] == [0, 4]


async def test_a_request_that_no_worker_can_hold_names_the_limit() -> None:
    worker = FakeDecodeWorker(answer_at_once=True)
    async with router(worker) as plane:
        with pytest.raises(ContextTooLong, match="limit here is 1000"):
            await collect(plane, request(max_tokens=992))
        plane.store.report(worker.member().key, EngineLoad(total_blocks=5, free_blocks=5))
        with pytest.raises(ContextTooLong, match="limit here is 20"):
            await collect(plane, request(max_tokens=12))
        assert isinstance((await collect(plane, request(max_tokens=11)))[-1], Completed)


async def test_the_queue_is_bounded() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1, max_queued_requests=1) as plane:
        tasks = [asyncio.create_task(collect(plane, request(f"r{i}"))) for i in range(2)]
        await until(lambda: plane.admission.num_queued == 1)
        refused = request("r2")
        with pytest.raises(QueueFull):
            await collect(plane, refused)
        assert "packed" not in refused.__dict__, "what is refused costs as little as it can"
        for name in ("r0", "r1"):
            await until(lambda name=name: name in [r.request_id for r in worker.submitted])
            worker.send(tokens_frame(name, 5, 6, last=True))
            worker.send(ended_frame(name, made=2))
        await asyncio.gather(*tasks)
        assert is_idle(plane)


async def test_many_requests_at_once_end_each_with_its_own_tokens() -> None:
    workers = [FakeDecodeWorker(f"decode-{i}", answer_at_once=True) for i in range(2)]
    async with router(*workers) as plane:
        results = await asyncio.gather(
            *(collect(plane, request(f"r{i}", max_tokens=1 + i % 5)) for i in range(60))
        )
        for number, events in enumerate(results):
            assert isinstance(events[0], ChoiceTokens)
            assert len(events[0].tokens) == 1 + number % 5
        assert is_idle(plane)
        assert min(len(worker.submitted) for worker in workers) > 15
