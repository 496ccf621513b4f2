"""`splitserve status`: one screen, or one JSON document."""

from __future__ import annotations

import asyncio
from collections import Counter

from cli.exit_code import ExitCode
from cli.fleet_status import (
    FleetStatus,
    MemberStatus,
    PairingStatus,
    RestartCount,
    RouterStatus,
    RouterUnreachable,
    ask_fleet,
)
from cli.json_output import print_data
from cli.rank_status import RankStatus
from cli.table import Table
from cli.terminal import complain
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.join_token import operators_token


def show_status(address: str, *, output: str, check: bool) -> ExitCode:
    """UNREACHABLE without a router; with `check`, FAILED when a worker is silent or unsound."""
    try:
        fleet = asyncio.run(ask_fleet(GrpcDialer(operators_token()), address, check=check))
    except RouterUnreachable as cause:
        complain(f"the router does not answer at {cause}", remedy="name it with --grpc HOST:PORT")
        return ExitCode.UNREACHABLE
    if not print_data(fleet, output):
        _print_tables(fleet)
    unsound = [member for member in fleet.workers if not member.is_sound]
    for member in unsound:
        complain(f"{member.worker_id}: {'; '.join(member.violations) or member.problem}")
    return ExitCode.FAILED if check and unsound else ExitCode.OK


def _print_tables(fleet: FleetStatus) -> None:
    print(
        f"router {fleet.router}  up {_duration(fleet.uptime_s)}  version {fleet.version}  "
        f"running {fleet.num_in_flight}  queued {fleet.num_queued}"
    )
    if fleet.given_up:
        print(f"given up while requests wait for long: {fleet.given_up}")
    _print_routers(fleet.routers)
    _print_pairings(fleet.pairings)
    _print_later(fleet.members)
    _print_other_engines(fleet.members)
    if not fleet.workers:
        print("no workers have joined")
        return
    table = Table(
        *("WORKER", "ROLE", "STATE", "ROUTER", "ADDRESS", "PID", "UP", "RUN", "WAIT"),
        *("KV BLOCKS", "CACHED", "PREFILL", "STEP", "TRANSPORT"),
    )
    for member in fleet.workers:
        table.add(*_cells(member))
    table.print()
    _print_ranks([member for member in fleet.members if len(member.ranks) > 1])
    _print_restarts(fleet.restarts)


def _print_routers(routers: list[RouterStatus]) -> None:
    """Where several share a store; the first is the one that was asked."""
    if not routers:
        return
    table = Table("ROUTER", "RUNNING", "INDEX", "LOAD", "DISAGREES ABOUT")
    for each in routers:
        doubted = ", ".join(each.doubted) or "-"
        table.add(each.name, str(each.num_in_flight), each.index_digest, each.load_digest, doubted)
    table.print()
    print()


def _print_pairings(pairings: list[PairingStatus]) -> None:
    """Where there are several: of one there is nothing to say."""
    if len(pairings) < 2:
        return
    table = Table("PAIRING", "MODEL", "PREFILL", "DECODE", "NEW REQUESTS", "LACKS")
    for each in pairings:
        counts = str(each.num_prefill), str(each.num_decode)
        served = "yes" if each.is_served else "no"
        table.add(each.digest, each.model_digest, *counts, served, each.lacks or "-")
    table.print()
    print()


def _print_later(members: list[MemberStatus]) -> None:
    """Who waits in a rolling update, and for what."""
    reasons = Counter(member.settles_later for member in members if member.settles_later)
    for reason, number in sorted(reasons.items()):
        print(f"{number} of the workers are not ready yet: {reason}")
    if reasons:
        print()


def _print_other_engines(members: list[MemberStatus]) -> None:
    """Whose own word is missing, and why that is nothing amiss."""
    others = [member for member in members if not member.is_ours]
    for member in others:
        engine = member.version or "another engine"
        print(f"{member.worker_id} is a server of {engine}: its line is as the router sees it")
    if others:
        print()


def _print_ranks(groups: list[MemberStatus]) -> None:
    """Of workers whose engine is several processes."""
    if not groups:
        return
    print()
    table = Table(
        *("WORKER", "RANK", "PID", "NODE", "DEVICE", "KV HEADS", "KV LEFT", "MEMORY", "GENERATION"),
        *("COLLECTIVES", "SKEW"),
    )
    for member in groups:
        for rank in member.ranks:
            table.add(member.worker_id, *_rank_cells(rank))
    table.print()


def _print_restarts(restarts: list[RestartCount]) -> None:
    """Since the fleet was started."""
    if not restarts:
        return
    print()
    table = Table("POOL", "STARTED AGAIN", "BECAUSE OF")
    for each in restarts:
        table.add(each.pool, str(each.count), each.cause)
    table.print()


def _rank_cells(rank: RankStatus) -> list[str]:
    """Times are of a step."""
    return [
        str(rank.rank),
        str(rank.pid),
        rank.node,
        rank.device,
        ",".join(map(str, rank.kv_heads)),
        "-" if rank.kv_blocks_left is None else str(rank.kv_blocks_left),
        f"{rank.peak_bytes >> 20} MiB" if rank.peak_bytes else "-",
        str(rank.generation),
        f"{rank.step_collectives_ms:.2f} ms" if rank.step_collectives_ms else "-",
        f"{rank.step_skew_ms:.2f} ms" if rank.step_collectives_ms else "-",
    ]


def _cells(member: MemberStatus) -> list[str]:
    load = member.load
    used = load.total_blocks - load.free_blocks - load.cached_blocks
    return [
        member.worker_id,
        member.role,
        "silent" if member.problem else member.state,
        member.router_state,
        member.address,
        str(member.pid) if member.is_ours else "-",
        _duration(member.uptime_s) if member.is_ours else "-",
        str(load.num_running),
        str(load.num_waiting),
        f"{used}/{load.total_blocks}",
        str(load.cached_blocks),
        f"{load.prefill_tokens_per_s:.0f} tok/s" if load.prefill_tokens_per_s else "-",
        f"{load.decode_step_ms:.1f} ms" if load.decode_step_ms else "-",
        member.kv_transport or "-",
    ]


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f}s"
    minutes, _ = divmod(int(seconds), 60)
    return f"{minutes}m" if minutes < 100 else f"{minutes // 60}h{minutes % 60:02}m"
