"""What a decode worker writes down of a traced request, and what its prefill worker is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cluster.errors import OutOfBlocks
from cluster.tracing.context import context_to_wire
from cluster.tracing.span import SpanKind
from engine.contract.commands import Fetch
from engine.contract.messages import Frame, PromptComputed
from protos import handoff_pb2
from tests.decode_worker.decode_bench import Bench, running_decode_worker
from tests.decode_worker.scripted_prefill import released
from tests.kept_spans import CALLER, KeptSpans, is_inside

TRACED = context_to_wire(CALLER)


@pytest.fixture
def kept() -> KeptSpans:
    return KeptSpans()


@pytest.fixture
async def bench(kept: KeptSpans) -> AsyncIterator[Bench]:
    async with running_decode_worker(tracing=kept) as running:
        yield running


async def test_a_prompt_that_was_pulled_has_reserve_handoff_transfer_and_decode(bench, near, kept):
    router = bench.open_session()
    await router.submit("a", near.target, trace=TRACED)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    stream.say_accepted(cached_tokens=4)
    stream.say_blocks(0, 2)
    stream.say_first_token(7)
    stream.say_done()
    fetch = await bench.link.wait_for(Fetch)
    bench.emit(engine_id, 7)
    bench.fetched(fetch)
    await released(stream)
    assert kept.all == []
    bench.end(engine_id)
    await router.ended("a")

    whole = kept.one("decode worker")
    assert (whole.trace_id, whole.parent_id, whole.state) == (b"t" * 16, b"callers!", "a=1")
    assert whole.kind is SpanKind.SERVER and whole.error is None
    names = {span.name for span in kept.all}
    assert names == {"decode worker", "reserve", "handoff", "transfer", "decode"}
    inner = [kept.one(name) for name in ("reserve", "handoff", "transfer", "decode")]
    assert {span.parent_id for span in inner} == {whole.span_id}
    assert all(is_inside(span, whole) for span in inner)
    starts = [span.start_ns for span in inner]
    assert starts == sorted(starts)
    reserve, handoff, transfer, decode = inner
    assert reserve.end_ns <= handoff.start_ns and transfer.end_ns <= decode.start_ns
    assert handoff.attributes["splitserve.prefill_worker"] == "prefill-near"
    assert transfer.attributes["splitserve.kv.bytes"] == 128
    assert transfer.attributes["splitserve.kv.blocks"] == 2
    assert decode.attributes["gen_ai.usage.output_tokens"] == 2
    told = stream.request.trace
    assert (told.trace_id, told.span_id, told.trace_state) == (b"t" * 16, handoff.span_id, "a=1")


async def test_each_prefill_worker_that_is_asked_has_a_handoff_of_its_own(bench, near, far, kept):
    router = bench.open_session()
    await router.submit("a", near.target, far.target, trace=TRACED)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    first = await near.stream()
    first.fail(OutOfBlocks("no block is free"))
    second = await far.stream()
    second.say_blocks(0, 2)
    second.say_first_token(7)
    second.say_done()
    bench.fetched(await bench.link.wait_for(Fetch))
    await released(second)
    bench.end(engine_id)
    await router.ended("a")
    one, other = kept.named("handoff")
    assert (one.error, one.attributes["error.type"]) == ("out_of_blocks", "out_of_blocks")
    assert other.error is None and one.end_ns <= other.start_ns
    assert [first.request.trace.span_id, second.request.trace.span_id] == [
        one.span_id,
        other.span_id,
    ]


async def test_a_prompt_that_is_computed_here_has_queue_and_prefill(bench, kept):
    router = bench.open_session()
    await router.submit("a", trace=TRACED)
    engine_id = await bench.submitted()
    bench.link.say(
        Frame(
            computed=[
                PromptComputed(request_id=engine_id, cached_tokens=4, queue_ms=0.0, prefill_ms=0.0)
            ]
        )
    )
    bench.emit(engine_id, 7)
    await router.next_frame()
    bench.end(engine_id)
    await router.ended("a")
    whole = kept.one("decode worker")
    inner = [kept.one(name) for name in ("queue", "prefill", "decode")]
    assert len(kept.all) == 4 and {span.parent_id for span in inner} == {whole.span_id}
    queue, prefill, decode = inner
    assert queue.end_ns == prefill.start_ns and prefill.end_ns == decode.start_ns


async def test_a_request_that_fails_says_why(bench, kept):
    router = bench.open_session()
    await router.submit("a", trace=TRACED)
    bench.end(await bench.submitted(), code="out_of_blocks", message="no block is free")
    await router.ended("a")
    (whole,) = kept.all
    assert (whole.error, whole.attributes["error.type"]) == ("no block is free", "out_of_blocks")


@pytest.mark.parametrize("trace", [None, handoff_pb2.TraceParent(trace_id=b"short")])
async def test_a_request_without_a_trace_leaves_none(bench, near, kept, trace):
    router = bench.open_session()
    await router.submit("a", near.target, trace=trace)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    assert not stream.request.HasField("trace")
    bench.end(engine_id)
    await router.ended("a")
    assert kept.all == []
