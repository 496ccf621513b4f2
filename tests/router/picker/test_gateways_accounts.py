"""What a gateway's requests leave in the accounts of their router: in traces, and in `cost`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.common_options import SamplingOptions
from protos import fleet_watch_pb2
from router.control.work_message import work_to_wire
from router.telemetry.request_tracing import RequestTracing
from tests.kept_spans import CALLER, KeptSpans, is_inside
from tests.router.front_fakes import until
from tests.router.picker.behind import Behind, behind
from tests.router.picker.gateway import Call, gateway_call, header_of
from tests.router.picker.test_endpoint_picker import key_of, secret_of
from tests.router.picker.test_what_passes import END, EVENT, STREAMED, USAGE

TOLD = USAGE.replace(
    b'"completion_tokens":3', b'"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":30}'
)


class KeptTracing(KeptSpans):
    """As a router's own."""

    def start(self) -> None:
        """There is no thread."""

    async def close(self) -> None:
        """Nothing is on its way."""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> KeptSpans:
    """The spans of the router of this test."""
    spans: Any = KeptTracing()
    monkeypatch.setattr(
        RequestTracing, "of", lambda options, *rest: RequestTracing(spans, options.sampled, "tiny")
    )
    return spans


async def asked(call: Call, body: dict[str, object], **head: str) -> Any:
    reply = await call.ask(body, head={name.replace("_", "-"): said for name, said in head.items()})
    await call.rest_of_body()
    return reply


async def over(router: Behind) -> None:
    await until(lambda: router.num_in_flight == 0, "it is over")


async def test_a_request_that_passes_is_a_tree_of_spans_under_its_clients_traceparent(
    kept: KeptSpans,
) -> None:
    async with behind(1) as router:
        async with gateway_call(router.picker) as call:
            told = {"traceparent": CALLER.traceparent, "tracestate": CALLER.state}
            reply = await asked(call, STREAMED, **told)
            await call.answered(200, EVENT, EVENT, END)
            await call.end()
        await until(lambda: kept.all, "its spans are there")
        name = router.plane.fleet.members[0].key.worker_id
    whole = kept.one("text_completion tiny")
    assert (whole.trace_id, whole.parent_id) == (CALLER.trace_id, CALLER.span_id)
    assert whole.error is None and whole.attributes["gen_ai.usage.output_tokens"] == 3
    assert whole.attributes["splitserve.decode_worker"] == name
    assert "gen_ai.response.finish_reasons" not in whole.attributes
    inner = [kept.one(each) for each in ("read", "admission", "dispatch", "attempt")]
    assert len(kept.all) == 5 and {span.parent_id for span in inner} == {whole.span_id}
    assert all(is_inside(span, whole) for span in inner)
    attempt = inner[-1]
    assert attempt.attributes["splitserve.decode_worker"] == name
    assert header_of(reply, "traceparent") == CALLER.under(attempt.span_id).traceparent
    assert header_of(reply, "tracestate") == CALLER.state


async def test_an_answer_that_fails_says_so_in_its_trace(kept: KeptSpans) -> None:
    async with behind(1) as router:
        async with gateway_call(router.picker) as call:
            await asked(call, STREAMED, traceparent=CALLER.traceparent)
            await call.answered(503, b"no")
            await call.end()
        await until(lambda: kept.all, "its spans are there")
    assert kept.one("attempt").error == "server_error"
    assert "answered 503" in (kept.one("text_completion tiny").error or "")


async def test_who_may_not_have_itself_traced_reaches_the_server_as_it_came(
    kept: KeptSpans,
) -> None:
    never = SamplingOptions(trace_ratio=0.0)
    async with behind(1, sampled=never) as router:
        async with gateway_call(router.picker) as call:
            reply = await asked(call, STREAMED, traceparent=CALLER.traceparent)
            await call.answered(200, EVENT, END)
            await call.end()
        assert header_of(reply, "traceparent") is None and kept.all == []


async def told_of(router: Behind) -> dict[str, fleet_watch_pb2.TenantWork]:
    (worker,) = (await work_to_wire(router.plane.fleet.ledger, lambda: 0.0)).workers
    return {work.tenant: work for work in worker.tenants}


@pytest.mark.parametrize(
    ("pieces", "prefilled", "decoded"),
    [((EVENT, EVENT, END), 38, 2), ((TOLD,), 8, 2)],
    ids=["a stream", "in one piece, of a server that says what it had cached"],
)
async def test_the_tokens_of_an_answer_that_passed_are_its_tenants(
    pieces: tuple[bytes, ...], prefilled: int, decoded: int, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [key_of("acme")]}))
    async with behind(1, api_keys=str(keys)) as router, gateway_call(router.picker) as call:
        body = STREAMED if len(pieces) > 1 else STREAMED | {"stream": False}
        await asked(call, body, authorization=f"Bearer {secret_of('acme')}")
        await call.answered(200, *pieces)
        await call.end()
        await over(router)
        work = (await told_of(router))["acme"]
        assert (work.num_requests, work.prefilled_tokens, work.decoded_tokens) == (
            *(1, prefilled, decoded),
        )


async def test_one_that_its_client_leaves_is_told_as_far_as_it_came() -> None:
    async with behind(1) as router:
        async with gateway_call(router.picker) as call:
            await asked(call, STREAMED)
            await call.answered(200, EVENT, EVENT, ends=False)
            work = (await told_of(router))[""]
            assert (work.num_requests, work.decoded_tokens) == (1, 1)  # while it runs
        await over(router)
        work = (await told_of(router))[""]
        assert work.num_requests == 1 and work.prefilled_tokens > 0
        assert work.decoded_tokens == 1
