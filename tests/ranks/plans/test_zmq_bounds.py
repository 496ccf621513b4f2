"""Plans and beats over ZMQ: whatever others say there, and whoever says nothing any more."""

from __future__ import annotations

import struct

import pytest
import zmq

from cluster.errors import RankLost
from ranks.channels import MAX_WAITING, Channels, speak_to
from ranks.plans.over_zmq import ZmqPlanReader, ZmqPlanWriter
from ranks.plans.plan import PlanKind
from ranks.plans.zmq_beats import NO_SIGN

LIMIT_S = 60.0
HELLO = struct.Struct("<QQ")
BEAT = struct.Struct("<QQQQQQQ")


class Group:
    """The conductor of two or three ranks."""

    def __init__(self, channels: Channels, world_size: int = 2, deadline_s: float = LIMIT_S):
        self.keys = channels.keys
        self.writer = ZmqPlanWriter(
            channels, world_size=world_size, generation=7, deadline_s=deadline_s
        )

    def rank(self, rank: int) -> ZmqPlanReader:
        addresses = self.writer.address, self.writer.beats.address
        return ZmqPlanReader(*addresses, rank, generation=7, keys=self.keys)

    def await_ranks(self) -> None:
        """What is no hello wakes who waits, too."""
        for _ in range(100):
            if self.writer.await_ranks(LIMIT_S):
                return
        raise AssertionError("the ranks do not come")


def test_what_is_no_hello_of_a_rank_does_not_count_and_ends_nothing(channels: Channels) -> None:
    group = Group(channels)
    context: zmq.Context[zmq.Socket[bytes]]
    address = group.writer.address
    hello = HELLO.pack(7, 1)
    with (
        zmq.Context() as context,
        speak_to(context, zmq.REQ, address, group.keys) as asker,
        speak_to(context, zmq.DEALER, address, group.keys, name=b"rank-2") as misnamed,
        speak_to(context, zmq.DEALER, address, group.keys) as odd,
    ):
        for socket in (asker, misnamed, odd):
            socket.setsockopt(zmq.LINGER, 0)
        asker.send(hello)  # three frames
        misnamed.send(hello)
        odd.send_multipart([b"", hello, b"", b""])
        odd.send(HELLO.pack(6, 1))
        for _ in range(4):
            assert not group.writer.await_ranks(LIMIT_S)
        rank = group.rank(1)
        group.await_ranks()
        group.writer.send(PlanKind.STEP, b"a step")
        assert rank.next(LIMIT_S) == (PlanKind.STEP, b"a step")
        assert odd.poll(0) == misnamed.poll(0) == 0
        rank.close()
    group.writer.close()


def test_a_rank_that_takes_nothing_is_lost_after_a_while_and_not_fed_without_end(
    channels: Channels,
) -> None:
    group = Group(channels, deadline_s=0.2)
    rank = group.rank(1)
    group.await_ranks()
    with pytest.raises(RankLost, match="takes no plans any more") as lost:
        for _ in range(10 * MAX_WAITING):
            group.writer.send(PlanKind.WORD, bytes(10_000))
    assert lost.value.ranks == (1,)
    rank.close()
    group.writer.close()


def test_beats_of_no_rank_are_not_kept_and_many_are_read_in_pieces(channels: Channels) -> None:
    group = Group(channels)
    beats = group.writer.beats
    context: zmq.Context[zmq.Socket[bytes]]
    with zmq.Context() as context, speak_to(context, zmq.PUSH, beats.address, group.keys) as odd:
        for other in (0, 2, 1 << 60):
            odd.send(BEAT.pack(7, other, 9, 0, 0, 0, 0))
        for num_plans in range(1, 201):
            odd.send(BEAT.pack(7, 1, num_plans, 0, 0, 0, 0))
        seen = [0]
        for _ in range(1_000_000):
            if seen[-1] < 200:
                seen.append(beats.sign_of(1).num_plans)
    assert seen[-1] == 200
    assert max(after - before for before, after in zip(seen, seen[1:], strict=False)) <= 64
    assert [beats.sign_of(other) for other in (0, 2, 1 << 60)] == [NO_SIGN] * 3
    group.writer.close()
