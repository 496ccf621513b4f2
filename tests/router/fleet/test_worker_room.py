"""What a worker can hold, less what it was promised."""

from __future__ import annotations

import random

from msgspec.structs import replace

from cluster.generation import EngineLoad
from router.fleet.need import NOTHING, Need
from router.fleet.room_part import RoomPart
from router.fleet.worker_room import WorkerRoom

BLOCK = 16


def load(*, free: int, running: int = 0, waiting: int = 0, cached: int = 0) -> EngineLoad:
    return EngineLoad(
        total_blocks=1000,
        free_blocks=free,
        cached_blocks=cached,
        num_running=running,
        num_waiting=waiting,
    )


def test_seats_are_taken_before_a_worker_says_so_and_never_more_than_there_are() -> None:
    room, parts = WorkerRoom(4, BLOCK), list[RoomPart]()
    while room.has(Need()):
        parts.append(RoomPart(Need(), room))
    assert len(parts) == 4
    room.heard(load(free=1000, running=4))
    assert not room.has(Need())
    parts.pop().release()
    assert room.has(Need()), "its own end is known before the worker's next word"


def test_what_others_have_there_counts_too() -> None:
    room = WorkerRoom(8, BLOCK)
    first = RoomPart(Need(), room)
    room.heard(load(free=1000, running=5, waiting=1))
    assert room.has(Need(num_seqs=2)) and not room.has(Need(num_seqs=3))
    first.release()
    assert room.has(Need(num_seqs=9)), "one of ours is always let in"


def test_blocks_are_held_for_the_prompt_until_it_is_computed_and_for_the_answer_until_its_end() -> (
    None
):
    room = WorkerRoom(0, BLOCK)
    room.heard(load(free=5, cached=5))
    need = Need(prompt_tokens=100, answer_tokens=20)
    part = RoomPart(need, room)
    assert not room.has(need) and room.has(Need(prompt_tokens=30, answer_tokens=10))
    room.heard(load(free=3))
    part.computed()
    part.computed()
    assert room.promised_tokens == 20
    assert room.has(Need(prompt_tokens=28)) and not room.has(Need(prompt_tokens=29))
    part.release()
    assert room.promised_tokens == 0


def test_where_ranks_share_blocks_a_request_has_to_fit_at_one_of_them() -> None:
    room = WorkerRoom(0, BLOCK)
    RoomPart(Need(answer_tokens=1), room)
    room.heard(replace(load(free=10), home_blocks_left=(4, 6)))
    assert room.has(Need(prompt_tokens=6 * BLOCK))
    assert not room.has(Need(prompt_tokens=6 * BLOCK, answer_tokens=1))
    room.heard(load(free=10))
    assert room.has(Need(prompt_tokens=6 * BLOCK, answer_tokens=1))


def test_what_would_fit_has_to_fit_at_one_rank_as_well() -> None:
    room, one = WorkerRoom(0, BLOCK), Need(answer_tokens=1)
    for _ in range(2):
        RoomPart(one, room)
    room.heard(replace(load(free=10), home_blocks_left=(4, 6)))
    ended = Need(answer_tokens=BLOCK)
    assert room.would_have(Need(prompt_tokens=7 * BLOCK), ended)
    assert not room.would_have(Need(prompt_tokens=7 * BLOCK + 1), ended)


def test_a_moment_at_which_nothing_has_ended_is_now() -> None:
    chance = random.Random(9)
    for _ in range(500):
        room = WorkerRoom(chance.choice((0, 3)), BLOCK)
        for _ in range(chance.randrange(4)):
            RoomPart(Need(1, chance.randrange(200), chance.randrange(200)), room)
        free = chance.randrange(40)
        blocks = replace(load(free=free), receiving_blocks=chance.randrange(20))
        room.heard(replace(blocks, home_blocks_left=(free // 3, free - free // 3)))
        need = Need(1, chance.randrange(300), chance.randrange(300))
        assert room.would_have(need, NOTHING) == room.has(need)


def test_a_worker_that_has_said_nothing_takes_what_comes() -> None:
    room = WorkerRoom(0, BLOCK)
    parts = [RoomPart(Need(prompt_tokens=10**6), room) for _ in range(100) if room.has(Need())]
    assert len(parts) == 100


def test_whatever_becomes_of_requests_nothing_is_promised_when_all_are_over() -> None:
    chance = random.Random(4)
    rooms = [WorkerRoom(4, BLOCK) for _ in range(3)]
    parts: list[RoomPart] = []
    for _ in range(5000):
        kind = chance.randrange(4)
        if kind == 0 or not parts:
            need = Need(chance.randrange(1, 4), chance.randrange(100), chance.randrange(100))
            parts.append(RoomPart(need, chance.choice([*rooms, None])))
        elif kind == 1:
            chance.choice(parts).move(chance.choice(rooms))
        elif kind == 2:
            chance.choice(parts).computed()
        else:
            (gone := parts.pop(chance.randrange(len(parts)))).release()
            gone.release()
        assert all(room.promised_seqs >= 0 and room.promised_tokens >= 0 for room in rooms)
    for part in parts:
        part.release()
    assert [(room.promised_seqs, room.promised_tokens) for room in rooms] == [(0, 0)] * 3


def test_tokens_that_were_made_are_in_the_workers_count_and_not_kept_for_any_more() -> None:
    room, num_made = WorkerRoom(0, BLOCK), 0
    room.heard(load(free=1000))
    part = RoomPart(Need(answer_tokens=100 * BLOCK), room)
    part.makes(lambda: num_made)
    part.computed()
    large = Need(answer_tokens=900 * BLOCK)
    assert room.has(large) and not room.has(replace_tokens(large, BLOCK))
    num_made = 60 * BLOCK
    room.heard(load(free=940))
    assert room.has(large) and not room.has(replace_tokens(large, BLOCK))
    num_made = 200 * BLOCK
    room.heard(load(free=800))
    assert room.has(Need(answer_tokens=800 * BLOCK)), "longer than was expected"
    part.release()
    assert room.promised_tokens == 0


def replace_tokens(need: Need, more: int) -> Need:
    return Need(need.num_seqs, need.prompt_tokens, need.answer_tokens + more)


def test_a_prompt_that_is_being_read_counts_once() -> None:
    room = WorkerRoom(0, BLOCK)
    room.heard(load(free=100))
    part = RoomPart(Need(prompt_tokens=50 * BLOCK), room)
    assert room.has(Need(prompt_tokens=50 * BLOCK))
    room.heard(replace(load(free=50), receiving_blocks=50))
    assert room.has(Need(prompt_tokens=50 * BLOCK))
    room.heard(replace(load(free=20), receiving_blocks=80))
    assert room.has(Need(prompt_tokens=20 * BLOCK)), "what others read is not free"
    assert not room.has(Need(prompt_tokens=20 * BLOCK + 1))
    part.computed()
    room.heard(load(free=50))
    assert room.has(Need(prompt_tokens=50 * BLOCK))


def test_what_moves_to_another_worker_is_kept_there_with_what_was_made() -> None:
    first, second = WorkerRoom(0, BLOCK), WorkerRoom(0, BLOCK)
    part = RoomPart(Need(prompt_tokens=100, answer_tokens=50), first)
    part.makes(lambda: 20)
    part.computed()
    assert first.promised_tokens == 30
    part.move(second, 64)
    assert (first.promised_tokens, second.promised_tokens) == (0, 100 - 64 + 50)
    part.release()
    assert (second.promised_tokens, second.promised_prompt_tokens) == (0, 0)
