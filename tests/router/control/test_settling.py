"""What a router says to workers that have not been ready yet."""

from __future__ import annotations

from dataclasses import replace

from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.member import Member, member_to_wire
from cluster.rollout_options import RolloutOptions
from cluster.rpc import open_channel
from cluster.world import World
from protos import membership_pb2, membership_pb2_grpc
from router.control.plane import FleetPlane
from router.fleet.first_look import HEAR_ALL_S
from tests.router.planes import PAIRING, member_of, served_plane
from tests.virtual_time import VirtualTime

NEW = replace(PAIRING, weights_digest="new")


async def told(
    stub: membership_pb2_grpc.MembershipStub, member: Member, *, is_settling: bool = True
) -> str:
    beat = membership_pb2.BeatRequest(
        worker_id=member.worker_id, incarnation=member.incarnation, is_settling=is_settling
    )
    reply = await stub.Beat(beat)
    assert reply.known
    return str(reply.settles_later)


async def settled(plane: FleetPlane, *members: Member) -> None:
    for member in members:
        await plane.store.join(member)
        await plane.store.beat(member.key, EngineLoad(), draining=False)


async def test_a_worker_ahead_of_its_partners_is_told_to_wait_and_operators_see_why() -> None:
    time = VirtualTime()
    async with (
        served_plane(world=World(clock=time, sleep=time.sleep)) as (plane, address),
        open_channel(address) as channel,
    ):
        stub = membership_pb2_grpc.MembershipStub(channel)
        time.now_s += HEAR_ALL_S
        await settled(plane, *(member_of(role, f"{role}-old") for role in Role))
        newcomers = [member_of(role, f"{role}-new", pairing=NEW) for role in Role]
        by_role = {member.role: member for member in newcomers}
        for member in newcomers:
            await stub.Join(membership_pb2.JoinRequest(member=member_to_wire(member)))
        prefill, decode = by_role[Role.PREFILL], by_role[Role.DECODE]
        why = await told(stub, prefill)
        assert "0 of 1 decode workers" in why
        view = await stub.Members(membership_pb2.MembersRequest())
        later = {each.member.worker_id: each.settles_later for each in view.members}
        assert {name for name, reason in later.items() if reason} == {"prefill-new"}
        assert later["prefill-new"] == why
        assert await told(stub, decode) == ""
        assert await told(stub, decode, is_settling=False) == ""
        assert await told(stub, prefill) == ""


async def test_without_a_bound_nobody_waits() -> None:
    async with (
        served_plane(rollout=RolloutOptions(max_pool_skew=1.0)) as (plane, address),
        open_channel(address) as channel,
    ):
        stub = membership_pb2_grpc.MembershipStub(channel)
        await settled(plane, *(member_of(role, f"{role}-old") for role in Role))
        prefill = member_of(Role.PREFILL, "prefill-new", pairing=NEW)
        await stub.Join(membership_pb2.JoinRequest(member=member_to_wire(prefill)))
        assert await told(stub, prefill) == ""


async def test_a_router_that_has_just_started_lets_nobody_settle_until_all_may_have_come_back() -> (
    None
):
    time = VirtualTime()
    async with (
        served_plane(world=World(clock=time, sleep=time.sleep)) as (plane, address),
        open_channel(address) as channel,
    ):
        stub = membership_pb2_grpc.MembershipStub(channel)
        only = member_of(Role.PREFILL, "prefill-new", pairing=NEW)
        await stub.Join(membership_pb2.JoinRequest(member=member_to_wire(only)))
        assert "may not know all workers yet" in await told(stub, only)
        assert await told(stub, only, is_settling=False) == ""
        time.now_s += HEAR_ALL_S
        assert await told(stub, only) == ""
