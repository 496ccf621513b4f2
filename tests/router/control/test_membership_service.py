"""Joining over gRPC, and what operators see."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from prometheus_client import generate_latest

from cluster.adapter import MAX_ADAPTERS
from cluster.errors import IdTaken, InvalidRequest, PairingMismatch
from cluster.identity import Role
from cluster.kv_events.keys import EventKeys
from cluster.membership.member import member_to_wire
from cluster.membership.store import MembershipChange
from cluster.pairing import VLLM, Pairing
from cluster.rpc import error_of, open_channel
from cluster.world import World
from protos import membership_pb2, membership_pb2_grpc, worker_pb2
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from tests.router.fake_decode_worker import FakeDecodeWorker, until
from tests.router.planes import PAIRING, member_of, prefill_member, served_plane
from tests.virtual_time import VirtualTime

OWN = OwnModel(tokenizer_digest="bb")


@asynccontextmanager
async def served(
    own: OwnModel = OWN,
    world: World | None = None,
    **options: float,
) -> AsyncIterator[tuple[FleetPlane, membership_pb2_grpc.MembershipStub]]:
    async with (
        served_plane(own, world, **options) as (plane, address),
        open_channel(address) as channel,
    ):
        yield plane, membership_pb2_grpc.MembershipStub(channel)


def member(worker_id: str = "prefill-1", **values: object) -> membership_pb2.Member:
    return member_to_wire(prefill_member(worker_id, **values))


def join(wire: membership_pb2.Member) -> membership_pb2.JoinRequest:
    return membership_pb2.JoinRequest(member=wire)


def beat(**load: float) -> membership_pb2.BeatRequest:
    return membership_pb2.BeatRequest(
        worker_id="prefill-1",
        incarnation="i1",
        load=worker_pb2.EngineLoad(**load),  # type: ignore[arg-type]
    )


async def test_who_joins_is_known_with_all_that_its_beats_say() -> None:
    """Between the two nobody is told that its adapters do not exist."""
    said = beat(num_running=2)
    said.adapters.add(name="one", digest="a" * 32, resident=True)
    said.unread_adapters.names.append("two")
    async with FakeDecodeWorker() as worker, served() as (plane, stub):
        request = join(member_to_wire(worker.member()))
        request.beat.CopyFrom(said)
        await stub.Join(request)
        (state,) = plane.store.members()
        assert state.member.worker_id == worker.worker_id and state.load.num_running == 2
        assert [each.adapter.name for each in state.adapters] == ["one"]
        assert plane.adapters.unread().names == {"two"}
        await until(lambda: plane.adapters.find("one") is not None)


@pytest.mark.parametrize(
    "names", [[f"n{index}" for index in range(MAX_ADAPTERS + 1)], ["a" * 97], ["../one"], [""]]
)
async def test_names_that_no_worker_may_tell_of_are_refused(names: list[str]) -> None:
    said = beat()
    said.unread_adapters.names.extend(names)
    async with served() as (plane, stub):
        request = join(member())
        request.beat.CopyFrom(said)
        for telling in (stub.Join(request), stub.Beat(said)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await telling
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert plane.store.members() == []


async def test_a_worker_joins_beats_and_leaves_and_operators_see_it() -> None:
    async with served() as (plane, stub):
        terms = await stub.Join(join(member()))
        assert (terms.beat_interval_s, terms.lease_s) == (1.0, 3.0)
        reply = await stub.Beat(beat(num_running=2, num_waiting=1))
        assert reply.known
        view = await stub.Members(membership_pb2.MembersRequest())
        [state] = view.members
        assert (state.member.worker_id, state.state) == ("prefill-1", "ready")
        assert (state.load.num_running, state.load.num_waiting) == (2, 1)
        assert 0 <= state.beat_age_s < 30
        draining = beat()
        draining.draining = True
        await stub.Beat(draining)
        view = await stub.Members(membership_pb2.MembersRequest())
        assert view.members[0].state == "draining"
        leave = membership_pb2.LeaveRequest(worker_id="prefill-1", incarnation="i1")
        await stub.Leave(leave)
        await stub.Leave(leave)
        assert not (await stub.Members(membership_pb2.MembersRequest())).members
        assert not (await stub.Beat(beat())).known
        assert plane.fleet.members == []


async def test_operators_see_the_spares_and_restarts_that_a_supervisor_tells_of() -> None:
    spare = membership_pb2.SpareWorker(worker_id="decode-1", role="decode", address="h:1", pid=7)
    async with served() as (plane, stub):
        for count in (2, 3):
            lost = membership_pb2.RestartCount(pool="decode", cause="rank_lost", count=count)
            report = membership_pb2.SupervisorReport(spares=[spare], restarts=[lost])
            await stub.Supervised(report)
        view = await stub.Members(membership_pb2.MembersRequest())
        assert (list(view.members), list(view.spares), list(view.restarts)) == ([], [spare], [lost])
        page = generate_latest(plane.registry).decode()
        assert 'splitserve_restarts_total{cause="rank_lost",pool="decode"} 3.0' in page
        assert 'splitserve_warm_spares{role="decode"} 1.0' in page
        await stub.Supervised(membership_pb2.SupervisorReport(restarts=[lost]))
        page = generate_latest(plane.registry).decode()
        assert 'splitserve_warm_spares{role="decode"} 0.0' in page
        assert 'splitserve_restarts_total{cause="rank_lost",pool="decode"} 3.0' in page


@pytest.mark.parametrize(
    "report",
    [
        {"spares": [{"role": "oracle"}]},
        {"spares": [{"role": "decode", "worker_id": "a" * 257}]},
        {"spares": [{"role": "decode"}] * 257},
        {"restarts": [{"pool": "decode", "cause": str(number)} for number in range(257)]},
        {"restarts": [{"pool": "decode", "cause": "a" * 257}]},
    ],
)
async def test_a_report_that_no_supervisor_makes_is_refused_and_changes_nothing(
    report: dict[str, list[dict[str, str]]],
) -> None:
    spares = [membership_pb2.SpareWorker(**each) for each in report.get("spares", ())]  # type: ignore[arg-type]
    restarts = [membership_pb2.RestartCount(**each) for each in report.get("restarts", ())]  # type: ignore[arg-type]
    async with served() as (plane, stub):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Supervised(membership_pb2.SupervisorReport(spares=spares, restarts=restarts))
        assert isinstance(error_of(caught.value), InvalidRequest)
        page = generate_latest(plane.registry).decode()
        assert "splitserve_restarts_total{" not in page
        assert 'splitserve_warm_spares{role="decode"} 0.0' in page


async def test_silence_removes_a_worker_whole_once_its_session_is_gone_too() -> None:
    async with FakeDecodeWorker() as worker, served(worker_lease_s=0.2) as (plane, stub):
        await stub.Join(join(member_to_wire(worker.member())))
        await until(lambda: plane.why_not_ready() is None)
        [item] = plane.fleet.members
        await until(lambda: plane.fleet.state_of(item) == "silent")
        assert (await plane.store.expire(plane.fleet.lives)) == []
        assert plane.why_not_ready() is None
        await worker.stop()
        await until(lambda: plane.fleet.members == [])
        assert plane.why_not_ready() == "no decode worker has joined"


async def test_silence_removes_a_prefill_worker_which_has_no_session() -> None:
    async with served(worker_lease_s=0.2) as (plane, stub):
        await stub.Join(join(member()))
        assert len(plane.fleet.members) == 1
        await until(lambda: plane.fleet.members == [])


async def test_a_silent_worker_gets_no_new_work_while_another_beats() -> None:
    silent, beating = FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")
    async with silent, beating, served(worker_lease_s=1.0) as (plane, stub):
        for worker in (silent, beating):
            await stub.Join(join(member_to_wire(worker.member())))
        await until(lambda: len(plane.fleet.ready(Role.DECODE)) == 2)
        request = membership_pb2.BeatRequest(worker_id="decode-2", incarnation="i1")
        item = plane.fleet.find(silent.member().key)
        assert item is not None
        while plane.fleet.state_of(item) != "silent":
            assert (await stub.Beat(request)).known
            await asyncio.sleep(0.01)
        assert [one.key.worker_id for one in plane.fleet.ready(Role.DECODE)] == ["decode-2"]


FP8, FULL = replace(PAIRING, weights="fp8"), replace(PAIRING, weights="full")


def decode_member(worker_id: str, pairing: Pairing) -> membership_pb2.Member:
    """Nobody listens at its address: its session stays closed."""
    return member_to_wire(member_of(Role.DECODE, worker_id, pairing=pairing))


async def test_another_tokenizer_is_refused_with_both_values() -> None:
    async with served(OwnModel()) as (plane, stub):
        await stub.Join(join(member("prefill-1")))
        foreign = replace(PAIRING, tokenizer_digest="zz")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Join(join(member("prefill-2", pairing=foreign)))
        error = error_of(caught.value)
        assert isinstance(error, PairingMismatch)
        assert "tokenizer_digest is 'zz', that of prefill-1 (m) is 'bb'" in error.message
        assert [item.key.worker_id for item in plane.fleet.members] == ["prefill-1"]
        await stub.Leave(membership_pb2.LeaveRequest(worker_id="prefill-1", incarnation="i1"))
        await stub.Join(join(member("prefill-2", pairing=foreign)))  # nobody else is left
        assert [item.key.worker_id for item in plane.fleet.members] == ["prefill-2"]


async def test_a_router_takes_no_other_tokenizer_than_its_own_though_it_has_no_worker() -> None:
    own = OwnModel(tokenizer_digest="bb", weights_digest="aa")
    async with served(own) as (plane, stub):
        foreign = replace(PAIRING, tokenizer_digest="zz")
        with pytest.raises(grpc.aio.AioRpcError, match="tokenizer_digest is 'zz'") as told:
            await stub.Join(join(member("prefill-1", pairing=foreign)))
        assert "splitserve models pull" in (told.value.details() or "")
        assert plane.fleet.members == []


@pytest.mark.parametrize("others", [FP8, FULL, replace(PAIRING, weights_digest="zz")])
async def test_workers_of_other_weights_join_beside_each_other(others: Pairing) -> None:
    own = OwnModel(tokenizer_digest="bb", weights_digest="aa")
    async with served(own) as (plane, stub):
        for wire in (member("prefill-1"), decode_member("decode-1", PAIRING)):
            await stub.Join(join(wire))
        for wire in (member("prefill-2", pairing=others), decode_member("decode-2", others)):
            await stub.Join(join(wire))
        assert len(plane.fleet.members) == 4


async def test_vllms_servers_and_workers_of_our_own_do_not_share_a_router() -> None:
    async with served() as (plane, stub):
        theirs = prefill_member("vllm-p:1", pairing=replace(PAIRING, weights=VLLM))
        await plane.store.join(theirs)
        with pytest.raises(grpc.aio.AioRpcError, match="do not share a router"):
            await stub.Join(join(member("prefill-1")))
        assert len(plane.fleet.members) == 1


async def test_who_joins_by_itself_is_no_server_of_vllms() -> None:
    async with served() as (plane, stub):
        with pytest.raises(grpc.aio.AioRpcError, match="name such a server to the router"):
            await stub.Join(join(decode_member("decode-1", replace(PAIRING, weights=VLLM))))
        assert plane.fleet.members == []


async def test_a_second_live_process_under_one_id_is_refused_until_the_first_falls_silent() -> None:
    time = VirtualTime()
    world = World(clock=time, sleep=time.sleep)
    async with served(world=world, beat_interval_s=0.2, worker_lease_s=60.0) as (plane, stub):
        await stub.Join(join(member()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Join(join(member(incarnation="i2", address="127.0.0.1:10")))
        error = error_of(caught.value)
        assert isinstance(error, IdTaken)
        assert "127.0.0.1:10 cannot join: the process at 127.0.0.1:9 has that id" in error.message
        assert plane.fleet.members[0].key.incarnation == "i1"
        await stub.Join(join(member()))  # the first may say again that it is there
        await time.advance(0.5)
        await stub.Join(join(member(incarnation="i2")))
        assert [item.key.incarnation for item in plane.fleet.members] == ["i2"]


async def test_a_decode_worker_whose_session_broke_is_replaced_by_its_successor_at_once() -> None:
    times = {"beat_interval_s": 60.0, "worker_lease_s": 60.0}
    async with FakeDecodeWorker() as worker, served(**times) as (plane, stub):
        await stub.Join(join(member_to_wire(worker.member())))
        await until(lambda: plane.why_not_ready() is None)
        successor = member_to_wire(worker.member(incarnation="i2"))
        with pytest.raises(grpc.aio.AioRpcError, match="has that id"):
            await stub.Join(join(successor))
        await worker.stop()
        await until(lambda: plane.why_not_ready() is not None)
        await stub.Join(join(successor))
        assert [item.key.incarnation for item in plane.fleet.members] == ["i2"]


async def test_a_member_whose_address_another_process_answers_is_out_until_it_joins_anew() -> None:
    async with FakeDecodeWorker() as worker, served() as (plane, stub):
        departed = member_to_wire(worker.member(worker_id="llama-decode-7"))
        worker.member()
        await stub.Join(join(departed))
        await until(lambda: bool(worker.meant) and plane.fleet.members == [])
        its_beat = membership_pb2.BeatRequest(
            worker_id="llama-decode-7", incarnation="i1", load=worker_pb2.EngineLoad()
        )
        assert not (await stub.Beat(its_beat)).known
        await stub.Join(join(member_to_wire(worker.member(incarnation="i2"))))
        await until(lambda: plane.why_not_ready() is None)


async def test_workers_that_do_not_pair_are_both_members_and_the_reason_is_kept() -> None:
    async with FakeDecodeWorker() as worker, served() as (plane, stub):
        await stub.Join(join(member_to_wire(worker.member())))
        await stub.Join(join(member(pairing=replace(PAIRING, dtype="float32"))))
        assert len((await stub.Members(membership_pb2.MembersRequest())).members) == 2
        [reason] = plane.fleet.mismatches
        assert "dtype is 'float32' there and 'bfloat16' here" in reason
        await stub.Leave(membership_pb2.LeaveRequest(worker_id="prefill-1", incarnation="i1"))
        assert plane.fleet.mismatches == ()


@pytest.mark.parametrize(
    "wire, kind, text",
    [
        (member(address="nowhere"), InvalidRequest, "host:port"),
        (member(address="0.0.0.0:9"), InvalidRequest, "address is '0.0.0.0:9'.*--advertise-host"),
        (member(kv_events_address="tcp://[::]:9"), InvalidRequest, "kv_events_address is .*"),
        (membership_pb2.Member(), InvalidRequest, "role"),
        (
            member(pairing=replace(PAIRING, tokenizer_digest="cc")),
            PairingMismatch,
            "'cc', the router's is 'bb'",
        ),
    ],
)
async def test_a_worker_that_cannot_be_right_is_refused_with_the_reason(
    wire: membership_pb2.Member, kind: type[Exception], text: str
) -> None:
    async with served() as (plane, stub):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Join(join(wire))
        error = error_of(caught.value)
        assert isinstance(error, kind)
        assert re.search(text, error.message)
        assert plane.fleet.members == []


@pytest.mark.parametrize("load", [{"decode_step_ms": float("nan")}, {"prefill_tokens_per_s": -1.0}])
async def test_a_beat_with_impossible_numbers_is_refused(load: dict[str, float]) -> None:
    async with served() as (_, stub):
        await stub.Join(join(member()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Beat(beat(**load))
        assert isinstance(error_of(caught.value), InvalidRequest)


async def test_what_a_worker_says_has_one_record_whichever_way_it_comes() -> None:
    heard = list[MembershipChange]()
    async with FakeDecodeWorker() as worker, served() as (plane, stub):
        plane.store.watch(heard.append)
        await stub.Join(join(member_to_wire(worker.member())))
        await until(lambda: plane.why_not_ready() is None)
        load = worker_pb2.EngineLoad(num_running=4, total_blocks=9)
        worker.send(worker_pb2.WorkerFrame(load=load))
        await until(lambda: heard[-1].state.load.num_running == 4)
        [item] = plane.fleet.members
        assert item.state is heard[-1].state is plane.store.members()[0]
        beat = membership_pb2.BeatRequest(
            worker_id=worker.worker_id, incarnation="i1", load=load, kv_transport="rc"
        )
        await stub.Beat(beat)
        assert item.member.kv_transport == "rc"
        assert item.state is plane.store.members()[0]


async def test_what_routers_alone_may_know_is_not_told_to_operators() -> None:
    told = EventKeys.new().of_readers
    keyed = member(kv_events_key=told.worker, kv_reader_secret=told.secret)
    async with served() as (plane, stub):
        await stub.Join(join(keyed))
        view = await stub.Members(membership_pb2.MembersRequest())
        assert view.members[0].member.kv_events_key == told.worker
        assert view.members[0].member.kv_reader_secret == ""
        assert told.secret not in str(view)
        assert plane.fleet.members[0].member.kv_reader_secret == told.secret
        assert told.secret not in repr(plane.fleet.members[0].member)


async def test_a_key_that_is_none_is_refused_and_not_repeated() -> None:
    async with served() as (_, stub):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Join(join(member(kv_reader_secret="a secret of another length")))
        assert "kv_reader_secret" in str(refused.value.details())
        assert "another" not in str(refused.value.details())
