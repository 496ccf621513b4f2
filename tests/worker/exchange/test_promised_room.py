"""What is promised to leaving workers: never more than there is, however many leave at once."""

from __future__ import annotations

import random

import pytest

from cluster.errors import OutOfBlocks
from cluster.generation import EngineLoad
from tests.virtual_time import VirtualTime
from worker.exchange.promised_room import ROUND_S, PromisedRoom, RoomLease

FULL = EngineLoad(total_blocks=100, cached_blocks=100)
"""Of which the colder half may go."""


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def room(time: VirtualTime) -> PromisedRoom:
    return PromisedRoom(time)


def kept(lease: RoomLease, num_blocks: int) -> None:
    """To its good end."""
    lease.place(num_blocks)
    lease.keep(num_blocks)
    lease.release()


def test_what_is_promised_to_one_is_not_promised_to_another(room: PromisedRoom) -> None:
    room.lease(30, FULL)
    with pytest.raises(OutOfBlocks, match="of 21 blocks is not taken over: 20 are free"):
        room.lease(21, FULL)
    room.lease(20, FULL)


def test_what_the_engine_has_made_room_for_is_not_counted_twice(room: PromisedRoom) -> None:
    load = EngineLoad(total_blocks=100, free_blocks=50)
    lease = room.lease(40, load)
    load = EngineLoad(total_blocks=100, free_blocks=10, receiving_blocks=40)
    lease.place(40)
    room.lease(10, load)


def test_who_was_taken_over_makes_no_room_for_the_next_in_one_round(
    room: PromisedRoom, time: VirtualTime
) -> None:
    kept(room.lease(50, FULL), 50)
    with pytest.raises(OutOfBlocks):
        room.lease(1, FULL)  # what it keeps is its own hotter half
    time.now_s += ROUND_S
    room.lease(50, FULL)


def test_what_does_not_come_or_was_known_is_promised_again(room: PromisedRoom) -> None:
    with pytest.raises(OSError), room.lease(50, FULL):
        raise OSError
    lease = room.lease(50, FULL)
    lease.place(10)  # 40 were known
    room.lease(40, FULL).release()
    lease.keep(4)
    lease.release()
    lease.release()
    room.lease(46, FULL)
    with pytest.raises(OutOfBlocks):
        room.lease(1, FULL)


@pytest.mark.parametrize("seed", range(5))
def test_in_any_order_no_more_is_open_or_kept_than_there_was(seed: int, room: PromisedRoom) -> None:
    draw = random.Random(seed)
    num_kept = 0
    open_: list[RoomLease] = []
    for _ in range(200):
        if open_ and draw.random() < 0.5:
            lease = open_.pop(draw.randrange(len(open_)))
            num = draw.randint(0, lease.num_blocks)
            lease.place(num)
            lease.keep(draw.randint(0, num))
            lease.release()
            num_kept += lease.num_blocks
        else:
            try:
                open_.append(room.lease(draw.randint(1, 8), FULL))
            except OutOfBlocks:
                continue
        assert num_kept + sum(lease.num_blocks for lease in open_) <= 50
    assert num_kept > 40
