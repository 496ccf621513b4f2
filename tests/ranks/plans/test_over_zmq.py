"""Plans over ZMQ: in order, whole, of one generation, with beats that come by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cluster.errors import InternalError, RankLost, WrongGeneration
from ranks.channels import Channels
from ranks.plans.over_zmq import ZmqPlanReader, ZmqPlanWriter
from ranks.plans.plan import PlanKind, RankSign

LIMIT_S = 60.0
GENERATION = 7


class Conductor(ZmqPlanWriter):
    """Of three ranks, with the keys for them."""

    def __init__(self, channels: Channels) -> None:
        super().__init__(channels, world_size=3, generation=GENERATION)
        self.keys = channels.keys


@pytest.fixture
def writer(channels: Channels) -> Iterator[Conductor]:
    made = Conductor(channels)
    yield made
    made.close()


def reader_of(writer: Conductor, rank: int) -> ZmqPlanReader:
    return ZmqPlanReader(
        writer.address, writer.beats.address, rank, generation=GENERATION, keys=writer.keys
    )


@pytest.fixture
def readers(writer: Conductor) -> Iterator[list[ZmqPlanReader]]:
    made = [reader_of(writer, rank) for rank in (1, 2)]
    while not writer.await_ranks(LIMIT_S):
        pass
    yield made
    for reader in made:
        reader.close()


def taken(reader: ZmqPlanReader) -> tuple[PlanKind, bytes]:
    plan = reader.next(LIMIT_S)
    assert plan is not None
    return plan.kind, bytes(plan.body)


def test_every_rank_gets_every_message_in_order(
    writer: Conductor, readers: list[ZmqPlanReader]
) -> None:
    long = bytes(range(256)) * 40_000
    writer.send(PlanKind.STEP, b"one", memoryview(b" and "), bytearray(b"two"))
    writer.send(PlanKind.WORD, long)
    writer.send(PlanKind.STOP)
    for reader in readers:
        assert taken(reader) == (PlanKind.STEP, b"one and two")
        assert taken(reader) == (PlanKind.WORD, long)
        assert taken(reader) == (PlanKind.STOP, b"")
        assert reader.next(0.0) is None


def test_a_rank_beats_by_itself_and_tells_what_it_has_taken(
    writer: Conductor, readers: list[ZmqPlanReader]
) -> None:
    writer.send(PlanKind.STEP, b"one")
    taken(readers[1])
    readers[1].next(0.0, waited_s=1.5, called_s=2.5, stepped_s=3.5)

    def sign_after(beat_ns: int, num_plans: int) -> RankSign:
        pause = threading.Event()
        for _ in range(int(LIMIT_S / 0.02)):
            sign = writer.sign_of(2)
            if sign.beat_ns > beat_ns and sign.num_plans == num_plans:
                return sign
            pause.wait(0.02)
        raise AssertionError("no beat comes")

    first = sign_after(0, num_plans=1)
    assert (first.waited_s, first.called_s, first.stepped_s) == (1.5, 2.5, 3.5)
    readers[1].lives_while(lambda: True)
    assert sign_after(first.beat_ns, num_plans=1).beat_ns > first.beat_ns


def test_a_plan_that_was_lost_is_missed_at_once(
    writer: Conductor, readers: list[ZmqPlanReader]
) -> None:
    writer.send(PlanKind.STEP, b"one")
    writer._sequence += 1
    writer.send(PlanKind.STEP, b"three")
    assert taken(readers[0]) == (PlanKind.STEP, b"one")
    with pytest.raises(InternalError, match="sent plan 2 where plan 1 was due"):
        readers[0].next(LIMIT_S)


def test_a_plan_of_another_generation_is_refused(
    writer: Conductor, readers: list[ZmqPlanReader]
) -> None:
    writer._generation = 8
    writer.send(PlanKind.STEP, b"one")
    with pytest.raises(WrongGeneration, match="rank 1 is of generation 7"):
        readers[0].next(LIMIT_S)


def test_a_group_that_is_given_up_is_sent_nothing(
    writer: Conductor, readers: list[ZmqPlanReader]
) -> None:
    writer.give_up()
    with pytest.raises(RankLost, match="takes no plans any more"):
        writer.send(PlanKind.STEP, b"one")
