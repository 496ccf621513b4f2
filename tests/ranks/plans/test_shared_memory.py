"""Plans in shared memory: in order, whole, to every rank, and never a wait without an end."""

from __future__ import annotations

import ctypes
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from cluster.errors import RankLost, WrongGeneration
from kernels.cpu.native_sources import NativeUnavailable
from ranks.plans.native_calls import load_plans
from ranks.plans.plan import PlanKind
from ranks.plans.segment import PlanSegment
from ranks.plans.shared_memory import SharedPlanReader, SharedPlanWriter, longest_piece

LIMIT_S = 60.0
RING_BYTES = 64 << 10
GENERATION = 7


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    try:
        return load_plans()
    except NativeUnavailable as reason:
        pytest.skip(str(reason))


class Ring:
    """A writer, and a reader for each other rank, each with a mapping of its own."""

    def __init__(self, library: ctypes.CDLL, world_size: int, deadline_s: float) -> None:
        segment = PlanSegment.create(world_size, GENERATION, ring_bytes=RING_BYTES)
        self.segment = segment
        self.writer = SharedPlanWriter(segment, library, deadline_s=deadline_s)
        self.readers = [
            SharedPlanReader(
                PlanSegment.attach(
                    os.dup(segment.fd), world_size=world_size, generation=GENERATION
                ),
                rank,
                library,
            )
            for rank in range(1, world_size)
        ]

    def close(self) -> None:
        for end in (self.writer, *self.readers):
            end.close()
            end.close()


@pytest.fixture
def ring(library: ctypes.CDLL) -> Iterator[Ring]:
    made = Ring(library, 3, LIMIT_S)
    with ExitStack() as closers:
        closers.callback(made.close)
        yield made


def taken(reader: SharedPlanReader) -> tuple[PlanKind, bytes]:
    plan = reader.next(LIMIT_S)
    assert plan is not None
    return plan.kind, bytes(plan.body)


def test_every_rank_gets_every_message_in_order(ring: Ring) -> None:
    ring.writer.send(PlanKind.STEP, b"one", memoryview(b" and "), bytearray(b"two"))
    ring.writer.send(PlanKind.WORD)
    ring.writer.send(PlanKind.STOP, b"end")
    for reader in ring.readers:
        assert taken(reader) == (PlanKind.STEP, b"one and two")
        assert taken(reader) == (PlanKind.WORD, b"")
        assert taken(reader) == (PlanKind.STOP, b"end")
        assert reader.next(0.0) is None


def test_many_messages_of_any_length_go_round_the_ring_as_they_were(ring: Ring) -> None:
    """Seeded: lengths around the ring's end, and some in pieces."""
    rng = random.Random(5)
    longest = longest_piece(ring.segment)
    lengths = [rng.choice((0, 1, 63, 64, 900, longest, 3 * longest + 5)) for _ in range(400)]
    bodies = [rng.randbytes(length) for length in lengths]

    def read(reader: SharedPlanReader) -> bool:
        return all(taken(reader) == (PlanKind.WORD, body) for body in bodies)

    with ThreadPoolExecutor(3) as threads:
        reads = [threads.submit(read, reader) for reader in ring.readers]
        for body in bodies:
            ring.writer.send(PlanKind.WORD, body)
        assert all(each.result(LIMIT_S) for each in reads)


def test_a_reader_that_sleeps_is_woken(ring: Ring) -> None:
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(taken, ring.readers[0])
        wait_until_asleep(ring)
        ring.writer.send(PlanKind.STEP, b"up")
        assert read.result(LIMIT_S) == (PlanKind.STEP, b"up")


def wait_until_asleep(ring: Ring) -> None:
    """Until a reader stands in the line of those that a message has to wake."""
    sleepers_at = 128 + 12
    ended = threading.Event()
    while ring.segment.memory.view[sleepers_at] == 0:
        assert not ended.wait(0.001)


def test_an_idle_rank_beats_and_tells_what_it_has_taken(ring: Ring) -> None:
    ring.writer.send(PlanKind.STEP, b"one")
    taken(ring.readers[1])
    before = ring.writer.sign_of(2)
    assert ring.readers[1].next(0.0, waited_s=1.5, called_s=2.5, stepped_s=3.5) is None
    after = ring.writer.sign_of(2)
    assert after.beat_ns > before.beat_ns > 0
    assert (after.num_plans, after.waited_s, after.called_s, after.stepped_s) == (1, 1.5, 2.5, 3.5)
    assert ring.writer.sign_of(1).beat_ns == 0


def test_a_rank_that_takes_nothing_ends_the_writer_s_wait(library: ctypes.CDLL) -> None:
    ring = Ring(library, 2, 0.2)
    with pytest.raises(RankLost, match="stands still for 0.2 s"):
        for _ in range(2 * RING_BYTES // longest_piece(ring.segment)):
            ring.writer.send(PlanKind.WORD, bytes(longest_piece(ring.segment)))
    ring.close()


def test_a_group_that_is_given_up_ends_every_wait(ring: Ring) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ring.readers[0].next, LIMIT_S)
        wait_until_asleep(ring)
        ring.writer.give_up()
        with pytest.raises(RankLost, match="generation 7"):
            waiting.result(LIMIT_S)
    with pytest.raises(RankLost):
        ring.readers[1].next(LIMIT_S)


def test_a_rank_of_another_generation_is_refused(ring: Ring) -> None:
    for world_size, generation in ((3, 8), (2, 7)):
        with pytest.raises(WrongGeneration, match="is of generation 7 with 3"):
            PlanSegment.attach(
                os.dup(ring.segment.fd), world_size=world_size, generation=generation
            )
    plain = os.memfd_create("nothing")
    with pytest.raises(WrongGeneration, match="of no group"):
        PlanSegment.attach(plain, world_size=3, generation=7)
