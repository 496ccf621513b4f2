"""Several pools of one role, such as one for each type of GPU, are told apart."""

from __future__ import annotations

from cli.inspect.pools import pools_of
from cli.inspect.timed_requests import By, timed
from cli.inspect.worker_accounts import accounts_of
from protos import fleet_watch_pb2, membership_pb2
from tests.cli.inspect.test_timed_requests import MODELS, traced_pair

OLD = "decode-old"
"""A worker that says no pool: of an earlier version, or started by hand."""


def member(worker_id: str, pool: str, running: int) -> membership_pb2.MemberState:
    state = membership_pb2.MemberState(
        member=membership_pb2.Member(worker_id=worker_id, role="decode", pool=pool), state="ready"
    )
    state.load.num_running = running
    return state


def test_pools_are_those_that_workers_say_they_are_of() -> None:
    answer = membership_pb2.MembersResponse(
        members=[member("a", "h200", 3), member("b", "h100", 2), member(OLD, "", 1)]
    )
    found = {pool.pool: (pool.role, pool.members, pool.running) for pool in pools_of(answer)}
    assert found == {
        "decode": ("decode", 1, 1),
        "h100": ("decode", 1, 2),
        "h200": ("decode", 1, 3),
    }


def test_time_is_of_the_pool_that_a_worker_is_of() -> None:
    answer = fleet_watch_pb2.WorkResponse(
        workers=[
            fleet_watch_pb2.WorkerTime(worker_id="a", role="decode", pool="h200", known_s=1),
            fleet_watch_pb2.WorkerTime(worker_id=OLD, role="decode", known_s=1),
        ]
    )
    assert [bill.pool for bill in accounts_of([answer])] == ["h200", "decode"]


def test_requests_are_of_their_workers_pools_and_of_one_that_left_by_its_role() -> None:
    def pools(**known: str) -> set[str]:
        request = timed(traced_pair(), MODELS, known)
        assert request is not None
        return {name for by, name in request.slices if by is By.POOL}

    workers = [leg.decode_worker for leg in traced_pair().legs]
    assert pools() == {"prefill", "decode"}
    assert pools(**{workers[0]: "h200"}) == {"prefill", "h200"}
