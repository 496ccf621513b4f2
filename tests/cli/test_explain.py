"""Explain against a router that is in the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
import yaml

from cli.decision_view import NOT_ROUTED, table_of
from protos import generation_pb2, router_admin_pb2, router_admin_pb2_grpc
from tests.cli.run_cli import cli

DECISION = router_admin_pb2.Decision(
    request_id="mine-0123456789ab",
    prompt_tokens=40,
    reason="pair_cheaper",
    candidates=[
        router_admin_pb2.Candidate(
            decode_worker="decode-0",
            prefill_worker="prefill-0",
            chosen=True,
            total_ms=28.5,
            prefill_ms=20.25,
            transfer_ms=8.25,
        ),
        router_admin_pb2.Candidate(decode_worker="decode-0", total_ms=31.0, interference_ms=31.0),
    ],
    workers=[router_admin_pb2.WorkerAtDecision(worker_id="decode-0", matched_tokens=16)],
    notes=["prefill-2 cannot pair"],
    arrival=router_admin_pb2.Arrival(
        tenant="acme",
        priority="batch",
        waited=True,
        num_before=12.0,
        num_waiting=30,
        line_ms=240.0,
        lacked="no seat",
    ),
    foretold=generation_pb2.Timing(ttft_ms=268.5, queue_ms=240.0, prefill_ms=20.2, kv_ms=8.2),
)
REFUSED = router_admin_pb2.Arrival(priority="standard", end="hopeless", error="too late")


class FakeRouter(router_admin_pb2_grpc.RouterAdminServicer):
    def Explain(self, request: Any, context: Any) -> Any:
        known = request.request_id == "mine"
        return router_admin_pb2.ExplainResponse(decisions=[DECISION] if known else [])


@contextmanager
def running_router() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    router_admin_pb2_grpc.add_RouterAdminServicer_to_server(FakeRouter(), server)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.fixture
def address() -> Iterator[str]:
    with running_router() as running:
        yield running


def test_the_table_marks_the_chosen_candidate_and_shows_every_term(address: str) -> None:
    done = cli("explain", "mine", "--grpc", address)
    assert (done.returncode, done.stderr) == (0, "")
    first, heading, pair, alone, worker, note, met, foretold, outcome = done.stdout.splitlines()
    assert first == "mine-0123456789ab: 40 prompt tokens, pair_cheaper"
    assert heading.split()[:4] == ["CANDIDATE", "TOTAL", "MS", "QUEUE"]
    assert pair.split() == (
        [
            "*",
            "prefill-0",
            "->",
            "decode-0",
            "28.50",
            "0.00",
            "20.25",
            "8.25",
            "0.00",
            "0.00",
            "0.00",
            "0.00",
        ]
    )
    assert alone.split()[:4] == ["(alone)", "->", "decode-0", "31.00"]
    assert worker == "decode-0: 16 tokens cached, 0 waiting, 0 running"
    assert note == "note: prefill-2 cannot pair"
    assert met == ("class batch, tenant acme: 12 before it, 30 in line, 240.0 ms expected; no seat")
    assert foretold.startswith("foretold: ttft 268.5 ms = queue 240.0 + prefill 20.2 + kv 8.2")
    assert "not known" in outcome


def test_a_request_that_went_to_no_worker_says_what_it_met_and_how_it_ended() -> None:
    told = router_admin_pb2.Decision(request_id="r1", reason=NOT_ROUTED, arrival=REFUSED)
    assert table_of(told).splitlines() == [
        "r1: at no worker",
        "class standard, no tenant: a place at once",
        "outcome: hopeless (too late)",
    ]


def test_the_outcome_says_how_ttft_adds_up() -> None:
    told = router_admin_pb2.Decision()
    told.CopyFrom(DECISION)
    told.usage.CopyFrom(generation_pb2.Usage(prompt_tokens=40, cached_tokens=16))
    told.timing.CopyFrom(generation_pb2.Timing(ttft_ms=30, prefill_ms=25, decode_ms=5))
    last = table_of(told).splitlines()[-1]
    assert "ttft 30.0 ms = queue 0.0 + prefill 25.0 + kv 0.0 + decode 5.0" in last
    assert "16 of 40 prompt tokens were cached" in last


def test_json_has_the_fields_of_the_wire(address: str) -> None:
    done = cli("explain", "mine", "--grpc", address, "-o", "json")
    (decision,) = json.loads(done.stdout)
    assert decision["candidates"][0]["transfer_ms"] == 8.25
    assert decision["candidates"][1]["prefill_worker"] == ""
    assert decision["candidates"][1]["chosen"] is False
    assert "timing" not in decision


def test_an_unknown_request_is_exit_code_1_with_what_to_do(address: str) -> None:
    done = cli("explain", "yours", "--grpc", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert "'yours'" in done.stderr and "X-Request-Id" in done.stderr


def test_no_router_is_exit_code_3_with_what_to_do() -> None:
    done = cli("explain", "mine", "--grpc", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "127.0.0.1:1" in done.stderr and "--grpc" in done.stderr


def test_several_routers_are_asked_side_by_side_and_each_decision_names_its_own(
    address: str,
) -> None:
    with running_router() as other:
        done = cli("explain", "mine", "--grpc", f"{address}, {other},127.0.0.1:1")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("at ")] == [f"at {address}", f"at {other}"]
    assert lines[1].startswith("mine-0123456789ab")
    assert "does not answer at 127.0.0.1:1" in done.stderr


def test_yaml_says_what_json_says(address: str) -> None:
    told = [cli("explain", "mine", "--grpc", address, "-o", form) for form in ("json", "yaml")]
    assert yaml.safe_load(told[1].stdout) == json.loads(told[0].stdout)


def test_as_json_a_decision_of_one_of_several_routers_has_its_address(address: str) -> None:
    with running_router() as other:
        done = cli("explain", "mine", "--grpc", f"{address},{other}", "--output", "json")
    assert [item["router"] for item in json.loads(done.stdout)] == [address, other]
