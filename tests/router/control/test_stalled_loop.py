"""A router whose own loop stands still for longer than a lease."""

import asyncio
import threading
import time

import grpc

from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.membership.member import Member, member_to_wire
from cluster.membership.store import ChangeKind, MembershipChange
from cluster.rpc import RpcServer
from cluster.world import World
from protos import membership_pb2, membership_pb2_grpc
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from tests.router.fake_decode_worker import PAIRING, until

BEAT_S = 0.1
LEASE_S = 1.0
STALL_S = 1.5


def beat_until(stop: threading.Event, router: str) -> None:
    """A worker in a thread: it goes on beating while the router's loop stands."""
    known = Member(
        worker_id="prefill-1",
        incarnation="i1",
        role=Role.PREFILL,
        address="127.0.0.1:9",
        pairing=PAIRING,
        model="m",
        max_context_tokens=100,
    )
    beat = membership_pb2.BeatRequest(worker_id="prefill-1", incarnation="i1")
    with grpc.insecure_channel(router) as channel:
        stub = membership_pb2_grpc.MembershipStub(channel)
        stub.Join(membership_pb2.JoinRequest(member=member_to_wire(known)))
        while not stop.wait(BEAT_S):
            stub.Beat(beat)


async def test_a_stall_of_the_routers_loop_beyond_the_lease_removes_nobody() -> None:
    options = RouterOptions(beat_interval_s=BEAT_S, worker_lease_s=LEASE_S)
    plane, server, stop = (
        FleetPlane(options, OwnModel(), World()),
        RpcServer("127.0.0.1", 0),
        threading.Event(),
    )
    changes: list[MembershipChange] = []
    plane.store.watch(changes.append)
    plane.register(server)
    router = f"127.0.0.1:{await server.start()}"
    await plane.start()
    worker = threading.Thread(target=beat_until, args=(stop, router))
    worker.start()
    await until(lambda: bool(plane.fleet.members))
    for _ in range(2):
        time.sleep(STALL_S)  # the beats of this time have arrived, and nobody has read them
        num_beats = len(changes)
        await until(lambda num_beats=num_beats: len(changes) > num_beats)
    stop.set()
    await asyncio.to_thread(worker.join)
    assert ChangeKind.EXPIRED not in {change.kind for change in changes}
    await plane.close()
    await server.stop(0)
