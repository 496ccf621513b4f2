"""What a prefill worker writes down of a traced prompt."""

from __future__ import annotations

import asyncio

import pytest

from cluster.tracing.context import context_to_wire
from cluster.tracing.span import SpanKind
from engine.contract.commands import ReleaseExport
from tests.kept_spans import CALLER, KeptSpans, is_inside
from tests.prefill_worker.prefill_bench import prefill_request, running_prefill_worker

TRACED = context_to_wire(CALLER)


@pytest.fixture
def kept():
    return KeptSpans()


@pytest.fixture
async def bench(kept):
    async with running_prefill_worker(tracing=kept) as running:
        yield running


async def read_until_done(call) -> None:
    async for event in call:
        if event.WhichOneof("event") == "done":
            return


async def test_a_prompt_that_was_announced_has_queue_prefill_and_export(bench, kept):
    call = bench.stub.Prefill(prefill_request(trace=TRACED))
    bench.compute_prompt(await bench.submitted())
    await read_until_done(call)
    assert kept.all == []
    call.cancel()
    await bench.link.wait_for(ReleaseExport)
    await until_written(kept)
    whole = kept.one("prefill worker")
    assert (whole.trace_id, whole.parent_id) == (b"t" * 16, b"callers!")
    assert whole.kind is SpanKind.SERVER and whole.error is None
    assert whole.attributes["splitserve.cached_tokens"] == 4
    assert whole.attributes["splitserve.held_ms"] >= 0
    inner = [kept.one(name) for name in ("queue", "prefill", "export")]
    assert len(kept.all) == 4 and {span.parent_id for span in inner} == {whole.span_id}
    assert all(is_inside(span, whole) for span in inner)
    queue, prefill, export = inner
    assert queue.end_ns == prefill.start_ns <= export.start_ns
    assert export.attributes == {"splitserve.kv.blocks": 2}


async def test_a_reader_that_leaves_early_is_said(bench, kept):
    call = bench.stub.Prefill(prefill_request(trace=TRACED))
    await bench.submitted()
    call.cancel()
    await bench.link.wait_for(ReleaseExport)
    await until_written(kept)
    assert kept.one("prefill worker").error == "its reader has left"
    assert len(kept.all) == 1


async def test_a_prompt_without_a_trace_leaves_none(bench, kept):
    call = bench.stub.Prefill(prefill_request())
    bench.compute_prompt(await bench.submitted())
    await read_until_done(call)
    call.cancel()
    await bench.link.wait_for(ReleaseExport)
    await asyncio.sleep(0)
    assert kept.all == []


async def until_written(kept) -> None:
    async with asyncio.timeout(60):
        while not kept.all:
            await asyncio.sleep(0)
