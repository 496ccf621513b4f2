"""The spans of requests at a router: one tree, however many workers have had a part in it."""

from __future__ import annotations

import pytest

from cluster.errors import WorkerLost
from cluster.tracing.span import FinishedSpan, SpanKind
from router.telemetry.request_trace import RequestTrace
from tests.kept_spans import CALLER, KeptSpans, is_inside
from tests.router.dispatch_bench import PROMPT
from tests.router.model_worker import Trouble, dies
from tests.router.streams_bench import LENGTH, Bench, bench, undisturbed, wishes


def trace_in(kept: KeptSpans) -> RequestTrace:
    return RequestTrace(kept.part(CALLER), "chat", "tiny")


def told_spans(here: Bench) -> list[tuple[bytes, bytes, str]]:
    """What workers were told of the trace, in the order of their attempts."""
    told = [submit.trace for worker in here.workers for submit in worker.submitted]
    return [(each.trace_id, each.span_id, each.trace_state) for each in told if each.trace_id]


async def test_a_request_has_the_stages_of_its_router_and_its_answer_in_numbers() -> None:
    kept = KeptSpans()
    async with bench(1) as here:
        await here.ask("r1", wishes(n=2), trace=trace_in(kept))
        told = told_spans(here)
    whole = kept.one("chat tiny")
    assert (whole.trace_id, whole.parent_id) == (CALLER.trace_id, CALLER.span_id)
    assert whole.kind is SpanKind.SERVER and whole.error is None
    said = whole.attributes
    assert said["gen_ai.usage.input_tokens"] == len(PROMPT)
    assert said["gen_ai.usage.output_tokens"] == 2 * LENGTH
    assert said["gen_ai.response.finish_reasons"] == ("length", "length")
    assert said["gen_ai.request.choice.count"] == 2
    assert said["splitserve.decode_worker"] == "decode-0"
    assert said["splitserve.class"] == "standard"
    assert said["splitserve.request.id"] == "r1"
    inner = [kept.one(name) for name in ("read", "admission", "dispatch", "attempt")]
    assert len(kept.all) == 5 and {span.parent_id for span in inner} == {whole.span_id}
    assert all(is_inside(span, whole) for span in inner)
    ends = [span.end_ns for span in inner]
    assert ends == sorted(ends)
    attempt = inner[-1]
    assert attempt.kind is SpanKind.CLIENT and attempt.error is None
    assert told == [(CALLER.trace_id, attempt.span_id, CALLER.state)]


async def test_a_worker_that_is_lost_leaves_a_failed_attempt_and_the_next_one_another() -> None:
    kept = KeptSpans()
    async with bench(1) as here:
        asked, expected = await undisturbed(here, "one choice")
        answer = await here.ask("r1", asked, Trouble(5, dies), trace=trace_in(kept))
        assert answer == expected
        told = told_spans(here)
    one, other = attempts(kept)
    assert one.error == one.attributes["error.type"] == "worker_lost"
    assert other.error is None
    assert [each.attributes["splitserve.attempt"] for each in (one, other)] == [1, 2]
    assert one.end_ns <= other.start_ns
    assert [span_id for _, span_id, _ in told] == [one.span_id, other.span_id]
    whole = kept.one("chat tiny")
    assert {each.parent_id for each in (one, other)} == {whole.span_id} and whole.error is None


async def test_a_request_that_fails_says_why() -> None:
    kept = KeptSpans()
    async with bench(1) as here:
        with pytest.raises(WorkerLost):
            troubles = Trouble(5, dies), Trouble(5, dies)
            await here.ask("r1", wishes(), *troubles, trace=trace_in(kept))
    whole = kept.one("chat tiny")
    assert whole.attributes["error.type"] == "request_given_up"
    assert whole.error is not None and "decode workers were lost 2 times" in whole.error
    assert [each.error for each in attempts(kept)] == ["worker_lost", "worker_lost"]


async def test_a_request_without_a_trace_tells_its_worker_of_none() -> None:
    async with bench(1) as here:
        await here.ask("r1", wishes())
        assert told_spans(here) == []


def attempts(kept: KeptSpans) -> list[FinishedSpan]:
    return sorted(kept.named("attempt"), key=lambda span: span.start_ns)
