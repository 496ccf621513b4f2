"""The membership store, with a clock of its own."""

from dataclasses import replace

import pytest

from cluster.errors import InvalidRequest, QueueFull
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.membership import memory
from cluster.membership.member import Member, member_from_wire, member_to_wire
from cluster.membership.memory import MemoryMembership
from cluster.membership.store import ChangeKind, MembershipChange
from cluster.pairing import Pairing

PAIRING = Pairing(
    weights_digest="aa",
    tokenizer_digest="bb",
    dtype="bfloat16",
    block_size_tokens=16,
    num_layers=30,
    num_kv_heads=3,
    head_dim=64,
)


def member(worker_id: str = "decode-1", incarnation: str = "i1") -> Member:
    return Member(
        worker_id=worker_id,
        incarnation=incarnation,
        role=Role.DECODE,
        address="127.0.0.1:7000",
        pairing=PAIRING,
        model="smollm2",
        max_context_tokens=2048,
        kv_events_address="tcp://127.0.0.1:7001",
        kv_replay_address="tcp://[::1]:7002",
    )


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Watched:
    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryMembership(3.0, clock=self.clock)
        self.changes: list[MembershipChange] = []
        self.store.watch(self.changes.append)

    def kinds(self) -> list[str]:
        """Who came and went."""
        kinds = [change.kind.value for change in self.changes]
        return [kind for kind in kinds if kind != "reported"]


async def test_a_worker_that_misses_beats_for_the_lease_is_removed_whole() -> None:
    watched = Watched()
    await watched.store.join(member())
    for _ in range(5):
        watched.clock.now_s += 2.0
        assert await watched.store.beat(member().key, EngineLoad(num_running=1), draining=False)
        assert await watched.store.expire() == []
    watched.clock.now_s += 3.1
    assert await watched.store.expire() == [member()]
    assert watched.store.members() == []
    assert watched.kinds() == ["joined", "expired"]
    assert not await watched.store.beat(member().key, EngineLoad(), draining=False)


async def test_a_new_incarnation_replaces_the_old_one_and_late_words_of_it_change_nothing() -> None:
    watched = Watched()
    await watched.store.join(member())
    await watched.store.beat(member().key, EngineLoad(num_running=9), draining=True)
    await watched.store.join(member(incarnation="i2"))
    assert watched.kinds() == ["joined", "replaced", "joined"]
    assert watched.changes[1].member.incarnation == "i1"
    assert not await watched.store.beat(member().key, EngineLoad(), draining=True)
    assert not await watched.store.leave(WorkerKey("decode-1", "i1"))
    [state] = watched.store.members()
    assert (state.member.incarnation, state.load, state.draining) == ("i2", EngineLoad(), False)


async def test_joining_twice_is_a_beat_and_no_change() -> None:
    watched = Watched()
    await watched.store.join(member())
    watched.clock.now_s += 2.9
    await watched.store.join(replace(member(), kv_transport="nixl/UCX"))
    watched.clock.now_s += 2.9
    assert await watched.store.expire() == []
    assert watched.kinds() == ["joined"]
    assert watched.store.members()[0].member.kv_transport == "nixl/UCX"


async def test_a_beat_carries_load_drain_and_a_transport_that_became_known() -> None:
    watched = Watched()
    await watched.store.join(member())
    await watched.store.beat(
        member().key, EngineLoad(num_waiting=4), draining=True, kv_transport="nixl"
    )
    await watched.store.beat(member().key, EngineLoad(num_waiting=5), draining=True)
    [state] = watched.store.members()
    assert (state.load.num_waiting, state.draining) == (5, True)
    assert state.member.kv_transport == "nixl"


async def test_every_watcher_hears_of_loads_and_drains_beside_joins_and_leaves() -> None:
    watched = Watched()
    await watched.store.join(member())
    await watched.store.beat(member().key, EngineLoad(num_waiting=4), draining=True)
    last = watched.changes[-1]
    assert last.kind is ChangeKind.REPORTED
    assert (last.state.load.num_waiting, last.state.draining) == (4, True)
    assert not await watched.store.beat(WorkerKey("decode-1", "i0"), EngineLoad(), draining=False)
    assert watched.changes[-1] is last


async def test_a_worker_that_lives_otherwise_is_not_removed_for_missing_beats() -> None:
    watched = Watched()
    await watched.store.join(member())
    await watched.store.join(member("decode-2"))
    watched.clock.now_s += 3.1
    gone = await watched.store.expire(lambda state: state.member.worker_id == "decode-1")
    assert [item.worker_id for item in gone] == ["decode-2"]
    assert await watched.store.beat(member().key, EngineLoad(), draining=False)


async def test_leaving_is_heard() -> None:
    watched = Watched()
    await watched.store.join(member())
    assert await watched.store.leave(member().key)
    last = watched.changes[-1]
    assert (last.kind, last.member) == (ChangeKind.LEFT, member())


async def test_a_fleet_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_MEMBERS", 2)
    store = MemoryMembership(3.0)
    await store.join(member("a"))
    await store.join(member("b"))
    await store.join(member("b", "i2"))
    with pytest.raises(QueueFull, match="limit"):
        await store.join(member("c"))


def test_a_member_survives_the_wire() -> None:
    for told in (member(), replace(member(), prefix_cache_off=True)):
        assert member_from_wire(member_to_wire(told)) == told


@pytest.mark.parametrize(
    "field, value",
    [
        ("worker_id", ""),
        ("worker_id", "x" * 300),
        ("worker_id", "a b"),
        ("incarnation", "\n"),
        ("role", "both"),
        ("address", "nowhere"),
        ("address", "host:0"),
        ("address", "host:70000"),
        ("address", "user@host:80"),
        ("kv_events_address", "ipc:///tmp/x"),
        ("kv_replay_address", "tcp://host"),
        ("model", ""),
        ("model", "m" * 300),
        ("max_context_tokens", 0),
    ],
)
def test_a_field_that_cannot_be_right_is_named(field: str, value: str | int) -> None:
    message = member_to_wire(member())
    setattr(message, field, value)
    with pytest.raises(InvalidRequest) as caught:
        member_from_wire(message)
    assert caught.value.param == field


@pytest.mark.parametrize(
    "field, value", [("block_size_tokens", 0), ("block_size_tokens", 5000), ("dtype", "")]
)
def test_a_pairing_that_cannot_be_right_is_named(field: str, value: str | int) -> None:
    message = member_to_wire(member())
    setattr(message.pairing, field, value)
    with pytest.raises(InvalidRequest, match=field):
        member_from_wire(message)


async def test_a_load_that_comes_otherwise_renews_the_lease_and_every_watcher_hears_it() -> None:
    watched, others = Watched(), list[MembershipChange]()
    watched.store.watch(others.append)
    await watched.store.join(member())
    await watched.store.beat(member().key, EngineLoad(num_running=1), draining=True)
    watched.clock.now_s += 2.0
    watched.store.report(member().key, EngineLoad(num_running=7))
    assert others == watched.changes
    assert (others[-1].kind, others[-1].state) == (ChangeKind.REPORTED, watched.store.members()[0])
    assert (others[-1].state.load.num_running, others[-1].state.draining) == (7, True)
    watched.clock.now_s += 2.0
    assert await watched.store.expire() == []
    watched.store.report(member(incarnation="i0").key, EngineLoad(num_running=9))
    assert watched.store.members()[0].load.num_running == 7


async def test_who_joins_again_is_told_to_every_watcher_with_its_new_record() -> None:
    watched = Watched()
    await watched.store.join(member())
    await watched.store.beat(member().key, EngineLoad(num_running=3), draining=False)
    await watched.store.join(replace(member(), kv_transport="rc"))
    told = watched.changes[-1]
    assert (told.kind, told.member.kv_transport) == (ChangeKind.REPORTED, "rc")
    assert told.state.load.num_running == 3
