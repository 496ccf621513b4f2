"""What a benchmark asks a running fleet, until it is as it should be."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil

from benchmarks.local_fleet import LocalFleet
from cli.fleet_status import FleetStatus, MemberStatus, ask_fleet
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.join_token import operators_token
from cluster.rpc import open_channel
from protos import membership_pb2, membership_pb2_grpc

LOOK_INTERVAL_S = 0.1


async def state_of(fleet: LocalFleet) -> FleetStatus:
    """As `splitserve status` has it."""
    return await ask_fleet(GrpcDialer(operators_token()), fleet.grpc_address, check=False)


async def is_replaced(fleet: LocalFleet, victim: MemberStatus, *, by: str | None = None) -> bool:
    """Another process of its pool takes requests: of any name, or of the name `by`. By the router's
    word: who stands still answers no question."""
    async with open_channel(fleet.grpc_address, token=operators_token()) as channel:
        stub = membership_pb2_grpc.MembershipStub(channel)
        seen = (await stub.Members(membership_pb2.MembersRequest())).members
    return any(
        state.member.role == victim.role
        and by in (None, state.member.worker_id)
        and state.member.incarnation != victim.incarnation
        and state.state == "ready"
        for state in seen
    )


async def is_quiet(fleet: LocalFleet) -> bool:
    """By `splitserve status --check`: every worker sound, its blocks free or cached."""
    report = await asyncio.to_thread(_checked_status, fleet)
    if report is None or report["num_in_flight"] or report["num_queued"]:
        return False
    return all(
        load["free_blocks"] + load["cached_blocks"] == load["total_blocks"]
        and not load["num_leases"]
        for load in (worker["load"] for worker in report["members"] + report.get("spares", []))
    )


def _checked_status(fleet: LocalFleet) -> dict[str, Any] | None:
    """None when a worker is silent or finds one of its invariants broken."""
    command = [sys.executable, "-m", "cli", "status", "--check", "-o", "json"]
    command += ["--grpc", fleet.grpc_address]
    done = subprocess.run(command, capture_output=True, check=False)
    report: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return report


def is_there(process: psutil.Process) -> bool:
    """A process that has not ended."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def seconds_until(condition: Callable[[], Awaitable[bool]], timeout_s: float) -> float | None:
    """How long it took to come true; None when it did not in time."""
    start_s = time.monotonic()
    while time.monotonic() - start_s < timeout_s:
        if await condition():
            return time.monotonic() - start_s
        await asyncio.sleep(LOOK_INTERVAL_S)
    return None
