"""Status against a router and workers that are in the test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
import yaml

from protos import membership_pb2, membership_pb2_grpc, router_admin_pb2_grpc, worker_pb2
from tests.cli.run_cli import cli

LOAD = worker_pb2.EngineLoad(
    num_running=2,
    num_waiting=1,
    total_blocks=100,
    free_blocks=60,
    cached_blocks=30,
    decode_step_ms=6.25,
    prefill_tokens_per_s=1234.0,
)


@dataclass
class FakeFleet(membership_pb2_grpc.MembershipServicer, router_admin_pb2_grpc.RouterAdminServicer):
    """One server that plays the router, which alone can be reached."""

    address: str = ""
    members: list[Any] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    checks: list[bool] = field(default_factory=list)
    spares: list[Any] = field(default_factory=list)
    restarts: list[Any] = field(default_factory=list)
    routers: list[Any] = field(default_factory=list)
    pairings: list[Any] = field(default_factory=list)
    paces: list[Any] = field(default_factory=list)
    load: Any = field(default_factory=lambda: LOAD)
    silent: set[str] = field(default_factory=set)

    def add(
        self,
        worker_id: str,
        role: str,
        *,
        router_state: str = "ready",
        ranks: Sequence[tuple[int, ...]] = (),
    ) -> None:
        member = membership_pb2.Member(
            worker_id=worker_id,
            incarnation="i1",
            role=role,
            address="10.9.8.7:7000",
            model="tiny",
            pid=77,
            kv_transport="nixl/UCX",
            ranks=[
                membership_pb2.RankFacts(
                    rank=rank,
                    pid=500 + rank,
                    node="here",
                    device="cpu",
                    generation=7,
                    kv_heads=heads,
                    peak_bytes=64 << 20,
                )
                for rank, heads in enumerate(ranks)
            ],
        )
        self.members.append(
            membership_pb2.MemberState(member=member, load=LOAD, state=router_state, beat_age_s=0.2)
        )

    def Members(self, request: Any, context: Any) -> Any:
        return membership_pb2.MembersResponse(
            members=self.members,
            num_queued=3,
            num_in_flight=4,
            uptime_s=12.0,
            version="9.9",
            spares=self.spares,
            restarts=self.restarts,
            routers=self.routers,
            pairings=self.pairings,
        )

    def WorkerStatus(self, request: Any, context: Any) -> Any:
        if request.worker_id in self.silent:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{request.worker_id} does not answer")
        self.checks.append(request.check_invariants)
        return worker_pb2.StatusResponse(
            state="draining",
            load=self.load,
            kv_transport="nixl/UCX shared memory",
            violations=self.violations if request.check_invariants else [],
            engine_pid=78,
            uptime_s=11.0,
            rank_paces=self.paces,
        )


@contextmanager
def running_fleet() -> Iterator[FakeFleet]:
    server = grpc.server(ThreadPoolExecutor(4))
    fleet = FakeFleet()
    fleet.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    membership_pb2_grpc.add_MembershipServicer_to_server(fleet, server)
    router_admin_pb2_grpc.add_RouterAdminServicer_to_server(fleet, server)
    server.start()
    try:
        yield fleet
    finally:
        server.stop(None).wait()


@pytest.fixture
def fleet() -> Iterator[FakeFleet]:
    with running_fleet() as running:
        yield running


def test_the_table_has_a_line_for_the_router_and_one_for_each_worker(fleet: FakeFleet) -> None:
    fleet.add("prefill-0", "prefill")
    fleet.add("decode-0", "decode")
    done = cli("status", "--grpc", fleet.address)
    assert (done.returncode, done.stderr) == (0, "")
    router, heading, decode, prefill = done.stdout.splitlines()
    assert router.startswith(f"router {fleet.address}") and "running 4  queued 3" in router
    assert heading.split()[:4] == ["WORKER", "ROLE", "STATE", "ROUTER"]
    assert decode.split()[:4] == ["decode-0", "decode", "draining", "ready"]
    assert prefill.startswith("prefill-0")
    for fact in ("10/100", "1234 tok/s", "6.2 ms", "nixl/UCX shared memory"):
        assert fact in decode
    assert fleet.checks == [False, False]


def test_spares_and_restarts_are_shown_below_the_members(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode")
    for worker_id, address in (("decode-0", "10.9.8.7:7000"), ("decode-1", "10.9.8.7:7001")):
        fleet.spares.append(
            membership_pb2.SpareWorker(worker_id=worker_id, role="decode", address=address, pid=79)
        )
    fleet.restarts.append(
        membership_pb2.RestartCount(pool="decode", cause="rank_lost", count=2),
    )
    done = cli("status", "--grpc", fleet.address)
    assert done.returncode == 0
    _, _, joined, spare, _, _, lost = done.stdout.splitlines()
    assert joined.split()[:2] == ["decode-0", "decode"]
    assert spare.split()[:4] == ["decode-1", "decode", "draining", "spare"]
    assert lost.split() == ["decode", "2", "rank_lost"]
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    (spared,) = report["spares"]  # the other one has just joined
    assert (spared["worker_id"], spared["pid"], spared["router_state"]) == ("decode-1", 79, "spare")
    assert report["restarts"] == [{"pool": "decode", "cause": "rank_lost", "count": 2}]


def test_yaml_says_what_json_says(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode")
    told = [cli("status", "--grpc", fleet.address, "-o", form) for form in ("json", "yaml")]
    assert yaml.safe_load(told[1].stdout) == json.loads(told[0].stdout)


def test_pairings_are_shown_while_there_are_several(fleet: FakeFleet) -> None:
    state = membership_pb2.PairingState
    fleet.pairings.append(
        state(digest="12ab", model_digest="m1", num_prefill=1, num_decode=2, is_served=True)
    )
    assert "PAIRING" not in cli("status", "--grpc", fleet.address).stdout
    fleet.pairings.append(state(digest="34cd", model_digest="m2", num_decode=1, lacks="prefill"))
    _, heading, served, other, *_ = cli("status", "--grpc", fleet.address).stdout.splitlines()
    assert heading.split() == ["PAIRING", "MODEL", "PREFILL", "DECODE", "NEW", "REQUESTS", "LACKS"]
    assert served.split() == ["12ab", "m1", "1", "2", "yes", "-"]
    assert other.split() == ["34cd", "m2", "0", "1", "no", "prefill"]
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    assert [each["is_served"] for each in report["pairings"]] == [True, False]


def test_json_holds_the_routers_view_and_the_workers_own_word(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode")
    done = cli("status", "--grpc", fleet.address, "-o", "json", "--check")
    report = json.loads(done.stdout)
    assert (report["num_in_flight"], report["num_queued"], report["version"]) == (4, 3, "9.9")
    (member,) = report["members"]
    assert (member["state"], member["pid"], member["engine_pid"]) == ("draining", 77, 78)
    assert member["load"]["free_blocks"] == 60 and member["load"]["num_leases"] == 0
    assert (member["violations"], member["problem"]) == ([], "")
    assert fleet.checks == [True]


def test_an_engine_of_several_ranks_has_a_line_for_each(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode", ranks=((0,), (1, 2)))
    *_, heading, first, second = cli("status", "--grpc", fleet.address).stdout.splitlines()
    assert heading.split()[:3] == ["WORKER", "RANK", "PID"]
    cells = ["decode-0", "0", "500", "here", "cpu", "0", "-", "64", "MiB", "7", "-", "-"]
    assert first.split() == cells
    assert second.split()[5] == "1,2"
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    ranks = report["members"][0]["ranks"]
    assert [(rank["rank"], rank["pid"], rank["kv_heads"]) for rank in ranks] == [
        (0, 500, [0]),
        (1, 501, [1, 2]),
    ]
    assert {(rank["node"], rank["device"], rank["generation"]) for rank in ranks} == {
        ("here", "cpu", 7)
    }


def test_how_ranks_keep_pace_is_shown_beside_what_they_are(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode", ranks=((0,), (1, 2)))
    fleet.paces = [
        worker_pb2.RankPace(
            rank=rank, step_collectives_ms=0.5, step_wait_ms=0.25, step_skew_ms=skew_ms
        )
        for rank, skew_ms in ((1, 0.125), (0, 0.0))
    ]
    *_, heading, first, second = cli("status", "--grpc", fleet.address).stdout.splitlines()
    assert heading.split()[-2:] == ["COLLECTIVES", "SKEW"]
    assert first.split()[-4:] == ["0.50", "ms", "0.00", "ms"]
    assert second.split()[-4:] == ["0.50", "ms", "0.12", "ms"]
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    ranks = report["members"][0]["ranks"]
    assert [rank["step_skew_ms"] for rank in ranks] == [0.0, 0.125]
    assert {(rank["step_collectives_ms"], rank["step_wait_ms"]) for rank in ranks} == {(0.5, 0.25)}


def test_the_blocks_that_each_rank_has_left_are_shown_where_ranks_share_blocks(
    fleet: FakeFleet,
) -> None:
    fleet.add("decode-0", "decode", ranks=((0, 1), (0, 1)))
    fleet.load = worker_pb2.EngineLoad(home_blocks_left=[12, 7])
    *_, heading, first, second = cli("status", "--grpc", fleet.address).stdout.splitlines()
    assert "KV HEADS  KV LEFT" in heading
    assert (first.split()[6], second.split()[6]) == ("12", "7")
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    (member,) = report["members"]
    assert [rank["kv_blocks_left"] for rank in member["ranks"]] == [12, 7]
    assert member["load"]["home_blocks_left"] == [12, 7]


@pytest.mark.parametrize("state", ["resting", "half_open", "silent", "connecting"])
def test_what_the_router_thinks_of_a_worker_is_shown_beside_its_own_word(
    fleet: FakeFleet, state: str
) -> None:
    fleet.add("decode-0", "decode", router_state=state)
    row = cli("status", "--grpc", fleet.address).stdout.splitlines()[2]
    assert row.split()[2:4] == ["draining", state]
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    (member,) = report["members"]
    assert (member["state"], member["router_state"]) == ("draining", state)


def test_routers_that_share_a_store_are_shown_with_what_they_disagree_about(
    fleet: FakeFleet,
) -> None:
    fleet.add("decode-0", "decode")
    facts = {"index_digest": 0xABC, "load_digest": 0x12, "num_in_flight": 3}
    fleet.routers += [
        membership_pb2.RouterState(name="a:50051/1", **facts),
        membership_pb2.RouterState(name="b:50051/2", **facts, doubted=["decode-0"]),
    ]
    _, head, first, second, *_ = cli("status", "--grpc", fleet.address).stdout.splitlines()
    assert head.split()[0] == "ROUTER"
    assert first.split() == ["a:50051/1", "3", "000000000abc", "12", "-"]
    assert second.split()[-1] == "decode-0"
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    assert [each["doubted"] for each in report["routers"]] == [[], ["decode-0"]]


def test_a_violation_is_exit_code_1_and_is_named(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode")
    fleet.violations = ["free + cached + active is 99, not 100"]
    done = cli("status", "--grpc", fleet.address, "--check")
    assert done.returncode == 1
    assert done.stderr == "error: decode-0: free + cached + active is 99, not 100\n"


def test_another_engines_server_is_told_as_the_router_sees_it_and_is_not_asked(
    fleet: FakeFleet,
) -> None:
    fleet.add("vllm-d:1", "decode")
    told = fleet.members[0].member
    told.version, told.pairing.weights = "vLLM 0.32.0", "vllm"
    done = cli("status", "--grpc", fleet.address, "--check")
    assert (done.returncode, done.stderr) == (0, "")
    _, line, _, _, row = done.stdout.splitlines()
    assert line == "vllm-d:1 is a server of vLLM 0.32.0: its line is as the router sees it"
    assert row.split()[:7] == ["vllm-d:1", "decode", "ready", "ready", "10.9.8.7:7000", "-", "-"]
    assert fleet.checks == []
    report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
    (member,) = report["members"]
    assert (member["is_ours"], member["problem"]) == (False, "")


def test_a_worker_that_does_not_answer_is_shown_as_silent(fleet: FakeFleet) -> None:
    fleet.add("decode-0", "decode")
    fleet.silent.add("decode-0")
    done = cli("status", "--grpc", fleet.address)
    assert done.returncode == 0 and "silent" in done.stdout and "decode-0" in done.stderr
    assert cli("status", "--grpc", fleet.address, "--check").returncode == 1


def test_a_fleet_without_workers_says_so(fleet: FakeFleet) -> None:
    assert "no workers have joined" in cli("status", "--grpc", fleet.address).stdout


def test_no_router_is_exit_code_3_with_what_to_do() -> None:
    done = cli("status", "--grpc", "127.0.0.1:1")
    assert done.returncode == 3 and done.stdout == ""
    assert "127.0.0.1:1" in done.stderr and "--grpc" in done.stderr
    assert "Traceback" not in done.stderr
