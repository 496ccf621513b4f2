"""A prompt that is prefilled elsewhere: pulled, given up, continued, or computed here."""

import asyncio

from cluster.block_span import BlockSpan
from cluster.errors import InternalError, OutOfBlocks, WorkerLost
from engine.contract.commands import (
    Cancel,
    Connect,
    Disconnect,
    Fetch,
    PrefillLocally,
    PrefillMode,
    Seed,
)
from engine.contract.commands import Submit as EngineSubmit
from protos import generation_pb2, worker_pb2
from tests.decode_worker.decode_bench import outcomes_of
from tests.decode_worker.scripted_prefill import DIGEST, released


async def test_the_adapter_and_whose_the_request_is_go_to_the_engine_and_to_the_source(bench, near):
    router = bench.open_session()
    submit = worker_pb2.Submit(
        request_id="a",
        token_ids=range(8),
        sampling=generation_pb2.SamplingParams(max_tokens=4),
        cache_root=bytes(16),
        timeout_ms=20_000.0,
        prefill=[near.target],
        adapter="a" * 32,
        owner=b"somebody",
    )
    await router.say(submit=submit)
    engine_id = await bench.submitted()
    body = bench.link.told(EngineSubmit)[0].request
    assert (body.adapter, body.owner) == ("a" * 32, b"somebody")
    bench.reserve(engine_id)
    asked = (await near.stream()).request
    assert (asked.adapter, asked.owner) == ("a" * 32, b"somebody")


async def test_a_prompt_is_pulled_and_the_stream_closed_when_all_blocks_are_verified(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    engine_id = await bench.submitted()
    assert bench.link.told(EngineSubmit)[0].request.mode is PrefillMode.REMOTE
    bench.reserve(engine_id)
    stream = await near.stream()
    assert list(stream.request.token_ids) == list(range(8))
    stream.say_accepted(cached_tokens=4)
    stream.say_blocks(0, 1)
    one = await bench.link.wait_for(Fetch, 1)
    stream.say_first_token(7)
    seed = await bench.link.wait_for(Seed)
    stream.say_blocks(1, 1)
    stream.say_done()
    two = await bench.link.wait_for(Fetch, 2)
    kinds = [type(command) for command in bench.link.commands]
    assert kinds.index(Connect) < kinds.index(Fetch)
    assert seed.tokens[0].token.token_id == 7
    assert one.span == BlockSpan(0, [100], [1], DIGEST)
    assert two.span == BlockSpan(1, [101], [1], DIGEST)
    bench.emit(engine_id, 7)
    assert (await router.next_frame()).tokens[0].tokens[0].token_id == 7
    assert not stream.released.is_set()
    bench.fetched(one)
    bench.fetched(two)
    await released(stream)
    bench.end(engine_id)
    ended = await router.ended("a")
    assert ended.usage.cached_tokens == 4
    assert ended.timing.prefill_worker == "prefill-near"
    assert ended.timing.prefill_ms == 40.0
    assert ended.timing.queue_ms >= 3.0
    assert ended.timing.kv_bytes == 128
    assert ended.timing.kv_transfer_ms == 4.0
    assert ended.timing.kv_visible_ms > 0
    stages = ended.stages
    in_order = [stages.reserved_ms, stages.asked_ms, stages.accepted_ms, stages.offered_ms]
    in_order += [stages.first_token_ms, stages.first_block_ms, stages.last_block_ms, stages.said_ms]
    assert in_order == sorted(in_order) and in_order[0] >= 0
    assert (stages.source_queue_ms, stages.source_prefill_ms) == (3.0, 40.0)
    assert stages.num_failed_sources == 0
    assert not bench.link.told(PrefillLocally)


async def test_blocks_that_are_cached_here_are_neither_asked_for_nor_read(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target, num_tokens=12)
    bench.reserve(await bench.submitted(), first_block=1, num_blocks=3)
    stream = await near.stream()
    assert stream.request.first_block == 1
    stream.say_blocks(0, 3)
    fetch = await bench.link.wait_for(Fetch)
    assert fetch.span == BlockSpan(1, [101, 102], [1, 1], DIGEST * 2)


async def test_a_prompt_that_is_wholly_cached_here_needs_nobody_else(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    bench.reserve(await bench.submitted(), first_block=2)
    await bench.link.wait_for(PrefillLocally)
    assert near.num_handshakes == 0


async def test_when_the_worker_dies_the_next_one_goes_on_from_the_first_bad_block(bench, near, far):
    router = bench.open_session()
    await router.submit("a", near.target, far.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    stream.say_blocks(0, 1)
    stream.say_first_token(7)
    bench.fetched(await bench.link.wait_for(Fetch))
    await bench.link.wait_for(Seed)
    await near.die()
    second = await far.stream()
    assert second.request.first_block == 1
    second.say_first_token(8)
    second.say_blocks(1, 1)
    second.say_done()
    fetch = await bench.link.wait_for(Fetch, 2)
    assert (fetch.incarnation, fetch.span.first_index) == (far.incarnation, 1)
    bench.fetched(fetch)
    await released(second)
    bench.end(engine_id)
    await router.ended("a")
    assert [seed.tokens[0].token.token_id for seed in bench.link.told(Seed)] == [7]
    assert bench.link.told(Disconnect)[0].incarnation == near.incarnation
    assert not bench.link.told(PrefillLocally)


async def test_without_a_worker_left_the_prompt_is_computed_here_after_the_last_read(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    stream.say_blocks(0, 1)
    fetch = await bench.link.wait_for(Fetch)
    await near.die()
    await bench.link.wait_for(Disconnect)
    assert not bench.link.told(PrefillLocally)
    bench.fetched(fetch, error="peer is gone", num_verified=0)
    await bench.link.wait_for(PrefillLocally)
    bench.end(engine_id)
    ended = await router.ended("a")
    assert ended.timing.prefill_worker == ""
    assert ended.timing.prefill_ms == 50.0
    assert ended.timing.kv_ms > 0


async def test_a_read_that_fails_gives_up_its_source_but_keeps_what_is_verified(bench, near, far):
    router = bench.open_session()
    await router.submit("a", near.target, far.target, num_tokens=12)
    bench.reserve(await bench.submitted(), num_blocks=3)
    stream = await near.stream()
    stream.say_blocks(0, 3)
    fetch = await bench.link.wait_for(Fetch)
    bench.fetched(fetch, error="block 1: digest differs", num_verified=1)
    await released(stream)
    assert (await far.stream()).request.first_block == 1


async def test_a_block_is_not_read_again_before_the_old_read_is_answered(bench, near, far):
    router = bench.open_session()
    await router.submit("a", near.target, far.target)
    bench.reserve(await bench.submitted())
    stream = await near.stream()
    stream.say_blocks(0, 1)
    old = await bench.link.wait_for(Fetch)
    await near.die()
    second = await far.stream()
    second.say_blocks(0, 2)
    new = await bench.link.wait_for(Fetch, 2)
    assert (new.incarnation, new.span.first_index, new.span.block_ids) == (
        far.incarnation,
        1,
        [101],
    )
    bench.fetched(old, error="peer is gone", num_verified=0)
    again = await bench.link.wait_for(Fetch, 3)
    assert (again.incarnation, again.span.first_index, again.span.block_ids) == (
        far.incarnation,
        0,
        [100],
    )


async def test_when_one_request_finds_a_worker_lost_the_others_on_its_connection_go_on(bench, near):
    """The first one closes the connection: the others' streams end without a word."""
    router = bench.open_session()
    for name in "abc":
        await router.submit(name, near.target)
    await bench.submitted(3)
    for submit in bench.link.told(EngineSubmit):
        bench.reserve(submit.request.request_id)
    await near.stream(3)
    near.streams[1].fail(WorkerLost("the engine died"))
    await bench.link.wait_for(PrefillLocally, 3)
    assert outcomes_of(bench) == {"worker_lost": 3}


async def test_a_cancelled_request_closes_its_prefill_stream_at_once(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    await router.cancel("a")
    await released(stream)
    assert (await bench.link.wait_for(Cancel)).request_id == engine_id


async def test_a_broken_session_closes_its_prefill_streams(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    bench.reserve(await bench.submitted())
    stream = await near.stream()
    router.call.cancel()
    await released(stream)


async def test_a_request_that_ends_while_blocks_are_read_stops_the_reads(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    stream.say_blocks(0, 1)
    await bench.link.wait_for(Fetch)
    bench.end(engine_id, code="deadline_exceeded", message="20000 ms")
    assert (await router.ended("a")).error.code == "deadline_exceeded"
    await released(stream)
    assert (await bench.link.wait_for(Cancel)).request_id == engine_id


async def test_first_tokens_for_other_choices_than_asked_are_refused(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target, n=2)
    bench.reserve(await bench.submitted())
    stream = await near.stream()
    stream.say_first_token(7)
    await bench.link.wait_for(PrefillLocally)
    assert not bench.link.told(Seed)


async def test_handoffs_are_counted_by_outcome(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    bench.reserve(await bench.submitted(1))
    await near.die()
    await bench.link.wait_for(PrefillLocally)
    bench.end(await bench.submitted(1))
    await router.ended("a")
    count = bench.worker.metrics.registry.get_sample_value(
        "splitserve_worker_handoffs_total", {"outcome": "local"}
    )
    assert count == 1


async def test_the_router_hears_which_prefill_worker_failed_and_which_did_not(bench, near, far):
    router = bench.open_session()
    await router.submit("a", near.target, far.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    (await near.stream()).fail(InternalError("a bug"))
    stream = await far.stream()
    stream.say_blocks(0, 2)
    stream.say_first_token(7)
    stream.say_done()
    bench.fetched(await bench.link.wait_for(Fetch))
    await released(stream)
    bench.end(engine_id)
    await router.ended("a")
    heard = [(o.worker_id, o.incarnation, o.failed) for f in router.frames for o in f.handoffs]
    assert heard == [
        ("prefill-near", near.incarnation, True),
        ("prefill-far", far.incarnation, False),
    ]


async def test_a_fault_of_the_request_is_not_held_against_the_prefill_worker(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    (await near.stream()).fail(OutOfBlocks("9 blocks, the pool has 8"))
    await bench.link.wait_for(PrefillLocally)
    bench.end(engine_id)
    await router.ended("a")
    assert not any(frame.handoffs for frame in router.frames)


async def test_a_request_that_the_engine_does_not_take_leaves_no_handoff_behind(
    bench, near, monkeypatch
):
    monkeypatch.setattr(bench.engine, "submit", lambda request, listener: 1 / 0)
    router = bench.open_session()
    await router.submit("a", near.target)
    assert (await router.ended("a")).error.code == "invalid_request"
    async with asyncio.timeout(5):
        while "handoff of a" in {task.get_name() for task in asyncio.all_tasks()}:
            await asyncio.sleep(0)
