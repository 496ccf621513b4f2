"""One trace of a request, over all processes and in one tree, from a real receiver of OTLP."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import httpx
import pytest

from protos import inference_pb2, inference_pb2_grpc
from tests.fleet.one_fleet import ENGINE
from tests.fleet.support import Fleet, fleet_channel, running_fleet, wait_for
from tests.free_ports import free_port
from tests.otlp_receiver import ReadSpan, Receiver, running_receiver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
CLIENTS_SPAN = "00f067aa0ba902b7"
PROMPT = "Seventeen lanterns hung above the narrow street and " * 8
CLOCKS_NS = 2_000_000
"""Two processes of one machine lay the same clock on the time of day, a little apart."""
SPANS_S = 60.0


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(receiver, tmp_path_factory) -> Iterator[Fleet]:
    arguments = ("--decode", "2", "--dtype", "float32", *ENGINE)
    arguments += ("--otlp-endpoint", receiver.endpoint)
    with running_fleet(tmp_path_factory.mktemp("traced"), *arguments, num_workers=3) as running:
        yield running


def traceparent(trace_id: str) -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{CLIENTS_SPAN}-01", "tracestate": "congo=t61"}


def body(prompt: str, **fields: object) -> dict[str, object]:
    return {"model": "smollm2", "prompt": prompt, "temperature": 0, **fields}


def tree(receiver: Receiver, trace_id: str, *services: str) -> dict[str, list[ReadSpan]]:
    """The spans by their names, once all of these services have sent theirs."""

    def of_all() -> list[ReadSpan]:
        found = receiver.of_trace(trace_id)
        return found if {span.service for span in found} >= set(services) else []

    found = wait_for(of_all, timeout_s=SPANS_S, what=f"spans of {services}")
    by_name: dict[str, list[ReadSpan]] = {}
    for span in found:
        by_name.setdefault(span.name, []).append(span)
    return by_name


ALL = ("splitserve-router", "splitserve-decode", "splitserve-prefill")


def test_a_request_is_one_tree_over_router_prefill_transfer_and_decode(fleet, receiver):
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    reply = httpx.post(
        f"{fleet.url}/v1/completions",
        json=body(PROMPT, max_tokens=8, timings=True),
        headers=traceparent(trace_id),
        timeout=60,
    )
    assert reply.status_code == 200, reply.text
    timing, usage = reply.json()["splitserve"], reply.json()["usage"]
    assert timing["prefill_worker"] == "prefill-0"

    spans = tree(receiver, trace_id, *ALL)
    assert {name: len(found) for name, found in spans.items()} == dict.fromkeys(
        [
            *("text_completion smollm2", "read", "admission", "dispatch", "attempt"),
            *("decode worker", "reserve", "handoff", "transfer", "decode"),
            *("prefill worker", "queue", "prefill", "export"),
        ],
        1,
    )
    (whole,) = spans["text_completion smollm2"]
    assert whole.span.parent_span_id.hex() == CLIENTS_SPAN
    every = receiver.of_trace(trace_id)
    assert {span.span.trace_state for span in every} == {"congo=t61"}
    by_id = {span.span.span_id: span for span in every}
    parents = {span.name: by_id[span.span.parent_span_id].name for span in every if span != whole}
    assert parents == {
        **dict.fromkeys(("read", "admission", "dispatch", "attempt"), whole.name),
        "decode worker": "attempt",
        **dict.fromkeys(("reserve", "handoff", "transfer", "decode"), "decode worker"),
        "prefill worker": "handoff",
        **dict.fromkeys(("queue", "prefill", "export"), "prefill worker"),
    }
    for span in every:
        if span != whole:
            assert span.is_inside(by_id[span.span.parent_span_id], CLOCKS_NS), span.name
    in_order = ("admission", "dispatch", "reserve", "queue", "prefill", "decode")
    ends = [spans[name][0].span.end_time_unix_nano for name in in_order]
    assert ends == sorted(ends)
    transfer, decode = spans["transfer"][0], spans["decode"][0]
    assert transfer.span.end_time_unix_nano <= decode.span.start_time_unix_nano + CLOCKS_NS
    assert transfer.attributes["splitserve.kv.bytes"] == timing["kv_bytes"] > 0
    assert "nixl" in transfer.attributes["splitserve.kv.link"]
    said = whole.attributes
    assert said["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert said["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert said["splitserve.prefill_worker"] == "prefill-0"
    assert said["splitserve.ttft_ms"] == pytest.approx(timing["ttft_ms"])


async def test_a_call_over_grpc_joins_its_callers_trace(fleet, receiver):
    trace_id = "a" * 32
    async with fleet_channel(fleet.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        request = inference_pb2.GenerateRequest(model="smollm2", text=PROMPT)
        request.sampling.max_tokens = 4
        metadata = tuple(traceparent(trace_id).items())
        async for _ in stub.Generate(request, metadata=metadata):
            pass
    spans = tree(receiver, trace_id, "splitserve-router", "splitserve-decode")
    (whole,) = spans["text_completion smollm2"]
    assert whole.span.parent_span_id.hex() == CLIENTS_SPAN


def test_a_request_whose_client_says_no_leaves_no_span(fleet, receiver):
    said_no, asked = "b" * 32, "c" * 32
    headers = {"traceparent": f"00-{said_no}-{CLIENTS_SPAN}-00"}
    for given in (headers, traceparent(asked)):
        reply = httpx.post(
            f"{fleet.url}/v1/completions", json=body("Hello", max_tokens=2), headers=given
        )
        assert reply.status_code == 200
    tree(receiver, asked, "splitserve-router", "splitserve-decode")
    assert receiver.of_trace(said_no) == []


async def test_a_killed_decode_worker_is_seen_as_two_attempts_of_one_request(fleet, receiver):
    trace_id, request = "d" * 32, body(PROMPT, max_tokens=300, stream=True, cache_salt="killed")
    events, victim = 0, ""
    async with (
        httpx.AsyncClient(timeout=120) as client,
        client.stream(
            "POST", f"{fleet.url}/v1/completions", json=request, headers=traceparent(trace_id)
        ) as reply,
    ):
        async for line in reply.aiter_lines():
            assert "error" not in line
            events += line.startswith("data: {")
            if events == 5 and not victim:
                victim = killed_decoder(fleet)
    assert victim
    spans = tree(receiver, trace_id, "splitserve-router", "splitserve-decode")
    (whole,) = spans["text_completion smollm2"]
    first, second = spans["attempt"]
    assert first.has_failed and first.attributes["splitserve.decode_worker"] == victim
    assert not second.has_failed and not whole.has_failed
    assert second.attributes["splitserve.decode_worker"] != victim
    assert {each.span.parent_span_id for each in (first, second)} == {whole.span.span_id}
    (left,) = spans["decode worker"]  # the killed one told nothing any more
    assert left.span.parent_span_id == second.span.span_id


def killed_decoder(fleet: Fleet) -> str:
    """The one that runs something."""
    workers = [each for each in fleet.status()["members"] if each["role"] == "decode"]
    busy = next(each for each in workers if each["load"]["num_running"])
    os.kill(busy["pid"], signal.SIGKILL)
    return str(busy["worker_id"])


def test_a_collector_that_is_not_there_costs_no_request_and_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    gone = f"http://127.0.0.1:{free_port()}"
    arguments = ("--prefill", "0", *ENGINE, "--otlp-endpoint", gone)
    with running_fleet(tmp_path, *arguments, num_workers=1) as fleet:
        page = f"{fleet.url}/metrics"
        for number in range(1, 4):
            reply = httpx.post(
                f"{fleet.url}/v1/completions", json=body("Hello", max_tokens=2), timeout=60
            )
            assert reply.status_code == 200
            lost = f'splitserve_trace_spans_total{{outcome="dropped"}} {5 * number}.0'
            wait_for(
                lambda lost=lost: lost in httpx.get(page, timeout=10).text,
                timeout_s=SPANS_S,
                what=lost,
            )
        text = (tmp_path / "router.log").read_text()
    said = [json.loads(line)["event"] for line in text.splitlines() if line.startswith("{")]
    assert said.count("traces are not taken by the collector, and are lost") == 1
