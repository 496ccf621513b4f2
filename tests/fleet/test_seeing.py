"""What an operator sees of one request: logs of every process, metrics, timing, reflection."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import httpx
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from protos import membership_pb2, membership_pb2_grpc
from tests.fleet.support import fleet_channel, wait_for

pytestmark = [
    *(pytest.mark.slow, pytest.mark.timeout(200)),
    pytest.mark.usefixtures("served_fleet"),
]
SENTENCE = "Seventeen lanterns hung above the narrow street and "
REQUEST_ID = "seen-from-everywhere-1"


@pytest.fixture(scope="module")
def asked(fleets):
    """One request with a name of its own, and its answer. The fleet has no history: its router
    sends a new prompt through the prefill worker."""
    url = fleets.running("served_fleet").url
    reply = httpx.post(
        f"{url}/v1/completions",
        json={
            "model": "smollm2", "prompt": SENTENCE * 8,
            "max_tokens": 6, "temperature": 0, "timings": True,
        },
        headers={"X-Request-Id": REQUEST_ID},
        timeout=60,
    )  # fmt: skip
    assert reply.status_code == 200, reply.text
    return reply


def lines_of(fleet, process):
    text = (fleet.log_path.parent / f"{process}.log").read_text()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("process", ["router", "decode-0", "prefill-0"])
def test_the_request_id_stands_in_the_log_of_every_process(served_fleet, asked, process):
    assert asked.headers["x-request-id"] == REQUEST_ID
    wait_for(
        lambda: [
            line
            for line in lines_of(served_fleet, process)
            if line.get("request_id", "").startswith(REQUEST_ID)
        ],
        timeout_s=60,
        what=f"a line of {process}",
    )


def test_the_timing_adds_up_and_names_the_workers(asked):
    timing = asked.json()["splitserve"]
    parts = sum(timing[name] for name in ("queue_ms", "prefill_ms", "kv_ms", "decode_ms"))
    assert parts == pytest.approx(timing["ttft_ms"], abs=0.01)
    assert timing["prefill_worker"] == "prefill-0" and timing["decode_worker"] == "decode-0"
    assert timing["kv_bytes"] > 0 and "nixl" in timing["kv_transport"]


def test_the_router_counts_it(served_fleet, asked):
    page = httpx.get(f"{served_fleet.url}/metrics", timeout=10).text
    for name in (
        'splitserve_requests_total{outcome="ok"}',
        'splitserve_ttft_stage_seconds_count{stage="prefill"}',
        'splitserve_ttft_stage_seconds_count{stage="kv"}',
        "splitserve_prefix_hit_tokens_total",
        "splitserve_queued_requests 0.0",
        'splitserve_members{role="prefill"} 1.0',
    ):
        assert name in page, name


def test_a_worker_shows_its_blocks_and_its_transfers(served_fleet, asked):
    ready = next(line for line in lines_of(served_fleet, "decode-0") if line["event"] == "ready")
    page = httpx.get(f"http://127.0.0.1:{ready['metrics_port']}/metrics", timeout=10).text
    assert 'splitserve_worker_kv_blocks{state="free"}' in page
    assert "splitserve_worker_kv_transfer_seconds_count" in page
    read = next(
        line for line in page.splitlines() if line.startswith("splitserve_worker_kv_transfer_bytes")
    )
    assert float(read.split()[1]) >= asked.json()["splitserve"]["kv_bytes"]


async def test_reflection_describes_the_public_service(served_fleet):
    async with fleet_channel(served_fleet.grpc_address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="splitserve.v1.Inference"
        )
        replies = [reply async for reply in stub.ServerReflectionInfo(iter([ask]))]
    assert replies[0].file_descriptor_response.file_descriptor_proto


def test_the_status_command_says_what_the_fleet_says(served_fleet):
    command = [sys.executable, "-m", "cli", "status", "-o", "json", "--check"]
    command += ["--grpc", served_fleet.grpc_address]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    told, asked = json.loads(done.stdout), served_fleet.status()
    names = ("worker_id", "incarnation", "role", "state", "pid", "engine_pid", "violations")
    assert [[m[n] for n in names] for m in told["members"]] == [
        [m[n] for n in names] for m in asked["members"]
    ]
    assert told["num_in_flight"] == asked["num_in_flight"] == 0
    assert told["members"][0]["load"].keys() == asked["members"][0]["load"].keys()


async def test_a_silent_worker_is_removed_within_five_seconds_and_comes_back(served_fleet):
    prefill = next(m for m in served_fleet.status()["members"] if m["role"] == "prefill")
    async with fleet_channel(served_fleet.grpc_address) as channel:
        os.kill(prefill["pid"], signal.SIGSTOP)
        await roles_become(channel, {"decode"}, timeout_s=5)
        os.kill(prefill["pid"], signal.SIGCONT)
        await roles_become(channel, {"decode", "prefill"}, timeout_s=60)


async def roles_become(channel, roles, *, timeout_s):
    """Asks the router for its members until they have those roles."""
    stub = membership_pb2_grpc.MembershipStub(channel)
    async with asyncio.timeout(timeout_s):
        while True:
            view = await stub.Members(membership_pb2.MembersRequest())
            if {state.member.role for state in view.members} == roles:
                return
