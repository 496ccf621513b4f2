"""What a planner makes of its routers' answers."""

from __future__ import annotations

import math

import pytest

from cluster.scaling.scaler import PoolState
from planner.sight import HighestSignal, sight_of
from planner.work_shares import WorkShares
from protos import fleet_watch_pb2, membership_pb2, worker_pb2
from tests.manual_clock import ManualClock


def pressures(*said: tuple[str, str, float]) -> fleet_watch_pb2.PressureResponse:
    return fleet_watch_pb2.PressureResponse(
        pressures=[
            fleet_watch_pb2.RolePressure(role=role, signal=signal, ratio=ratio)
            for role, signal, ratio in said
        ]
    )


def member(worker_id: str, role: str = "decode", **load: float) -> membership_pb2.MemberState:
    return membership_pb2.MemberState(
        member=membership_pb2.Member(
            worker_id=worker_id, role=role, incarnation="1", max_num_seqs=8
        ),
        load=worker_pb2.EngineLoad(**load),  # type: ignore[arg-type]
    )


def pool(name: str, role: str = "") -> PoolState:
    return PoolState(name=name, num_wanted=1, num_present=1, num_ready=1, generation=1, role=role)


def test_of_several_routers_and_signals_the_highest_counts_and_lines_are_added() -> None:
    members = [
        membership_pb2.MembersResponse(num_queued=2),
        membership_pb2.MembersResponse(num_queued=3),
    ]
    said = [
        pressures(("decode", "wait", 0.2), ("decode", "free_blocks", 1.5)),
        pressures(("decode", "inter_token", 1.7), ("prefill", "wait", 0.4)),
    ]
    seen = sight_of(members, said, [pool("decode"), pool("prefill")], {"prefill": 0.3})
    assert seen.roles["decode"].pressure == HighestSignal("inter_token", 1.7)
    assert seen.roles["prefill"].pressure == HighestSignal("wait", 0.4)
    assert (seen.roles["decode"].num_in_line, seen.roles["prefill"].work_share) == (5, 0.3)


@pytest.mark.parametrize("ratio", [math.inf, math.nan, 1e300])
def test_a_pressure_without_bound_is_a_high_one(ratio: float) -> None:
    answer = [membership_pb2.MembersResponse()]
    seen = sight_of(answer, [pressures(("decode", "wait", ratio))], [pool("decode")], {})
    assert seen.roles["decode"].pressure.ratio == 1000.0


def test_pools_of_one_role_are_seen_together() -> None:
    answer = [membership_pb2.MembersResponse()]
    pools = [pool("h100", "decode"), pool("h200", "decode"), pool("prefill", "prefill")]
    seen = sight_of(answer, [], pools, {})
    assert [each.name for each in seen.roles["decode"].pools] == ["h100", "h200"]
    assert seen.roles["prefill"].pressure.ratio == 0.0


def test_what_is_busy_are_blocks_that_are_not_cached_or_places_whichever_is_nearer() -> None:
    by_blocks = member("a", total_blocks=100, free_blocks=10, cached_blocks=30, num_running=1)
    by_places = member("b", total_blocks=100, free_blocks=90, cached_blocks=5, num_running=7)
    for states, share in (([by_blocks], 0.6), ([by_places], 7 / 8), ([by_blocks, by_places], 0.5)):
        answer = [membership_pb2.MembersResponse(members=states)]
        seen = sight_of(answer, [], [pool("decode")], {})
        assert seen.roles["decode"].busy_share == pytest.approx(share)


def test_a_router_that_was_just_started_and_knows_nobody_yet_is_not_believed_that_all_is_idle() -> (
    None
):
    busy = member("a", total_blocks=100, free_blocks=10)
    answers = [membership_pb2.MembersResponse(), membership_pb2.MembersResponse(members=[busy])]
    seen = sight_of(answers, [], [pool("decode")], {}).roles["decode"]
    assert (seen.num_seen, seen.busy_share) == (1, 0.9)


def test_who_is_held_by_any_router_is_not_ready_and_has_no_room() -> None:
    free = member("a", total_blocks=100, free_blocks=60)
    held = member("b", total_blocks=100, free_blocks=80)
    known = membership_pb2.MembersResponse(members=[free, held])
    told = membership_pb2.MembersResponse(members=[held])
    told.members[0].hold = "drain"
    pools = [pool("h100", "decode"), pool("h200", "decode")]
    seen = sight_of([known, told], [], pools, {}).roles["decode"]
    assert (seen.num_held, seen.num_ready, seen.num_seen) == (1, 1, 2)
    assert seen.busy_share == pytest.approx(0.6)


def test_work_is_what_steps_took_since_the_last_look_and_fades_with_a_minute() -> None:
    clock = ManualClock()
    work = WorkShares(clock)
    assert work.after([member("a", "prefill", prefill_busy_s=5.0)]) == {}
    clock.advance(10)
    told = work.after([member("a", "prefill", prefill_busy_s=13.0)])
    assert told["prefill"] == pytest.approx(0.8)
    clock.advance(600)
    told = work.after([member("a", "prefill", prefill_busy_s=13.0)])
    assert told["prefill"] < 0.001


def test_a_worker_that_was_started_again_counts_from_its_second_look() -> None:
    clock = ManualClock()
    work = WorkShares(clock)
    work.after([member("a", "prefill", prefill_busy_s=500.0)])
    clock.advance(10)
    again = member("a", "prefill", prefill_busy_s=1.0)
    again.member.incarnation = "2"
    assert work.after([again]).get("prefill", 0.0) == 0.0
    clock.advance(10)
    again.load.prefill_busy_s = 6.0
    assert work.after([again])["prefill"] == pytest.approx(0.5)
