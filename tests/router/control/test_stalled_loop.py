"""A router whose own loop stands still for longer than a lease."""

import asyncio
import threading
import time

import grpc

from cluster.membership.member import member_to_wire
from cluster.membership.store import ChangeKind, MembershipChange
from protos import membership_pb2, membership_pb2_grpc
from tests.router.fake_decode_worker import until
from tests.router.planes import prefill_member, served_plane

BEAT_S = 0.1
LEASE_S = 1.0
STALL_S = 1.5


def beat_until(stop: threading.Event, router: str) -> None:
    """A worker in a thread: it goes on beating while the router's loop stands."""
    beat = membership_pb2.BeatRequest(worker_id="prefill-1", incarnation="i1")
    with grpc.insecure_channel(router) as channel:
        stub = membership_pb2_grpc.MembershipStub(channel)
        stub.Join(membership_pb2.JoinRequest(member=member_to_wire(prefill_member())))
        while not stop.wait(BEAT_S):
            stub.Beat(beat)


async def test_a_stall_of_the_routers_loop_beyond_the_lease_removes_nobody() -> None:
    stop, changes = threading.Event(), list[MembershipChange]()
    times = {"beat_interval_s": BEAT_S, "worker_lease_s": LEASE_S}
    async with served_plane(**times) as (plane, router):
        plane.store.watch(changes.append)
        worker = threading.Thread(target=beat_until, args=(stop, router))
        worker.start()
        try:
            await until(lambda: bool(plane.fleet.members))
            for _ in range(2):
                time.sleep(STALL_S)  # the beats of this time have arrived, and nobody has read them
                num_beats = len(changes)
                await until(lambda num_beats=num_beats: len(changes) > num_beats)
        finally:
            stop.set()
            await asyncio.to_thread(worker.join)
        assert ChangeKind.EXPIRED not in {change.kind for change in changes}
