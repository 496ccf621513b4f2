"""Who is next at a text worker: by size, age and turn, not by who came in a crowd."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cluster.errors import QueueFull
from cluster.grammar import Grammar, GrammarKind
from protos import inference_pb2
from router.front.caller import Caller
from router.front.chat_rules import MAX_MESSAGES
from router.front.text_work import Door
from router.text_worker import waiting
from router.text_worker.messages import MESSAGE_BYTES, ReadLarge, TryGrammar, pack_task, size_of
from router.text_worker.waiting import AGEING_BYTES_PER_S, Job, WaitingTasks

LONG, SHORT = 32 * 1024, 200


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tasks(clock: Clock) -> WaitingTasks:
    return WaitingTasks(clock=clock)


def job(size_bytes: int, body: bytes = b"", *, address: str = "here", connection: str = "1") -> Job:
    caller = Caller(address, f"{address} {connection}")
    return Job(b"", body, size_bytes, asyncio.get_running_loop().create_future(), caller)


async def test_a_short_chat_goes_before_every_long_one_of_the_last_half_minute(
    tasks: WaitingTasks, clock: Clock
) -> None:
    """255 long ones of 110 ms each: 28 s of work."""
    for _ in range(255):
        tasks.add(job(LONG))
    for clock.now_s in (0.0, 5.0, 28.0):
        short = job(SHORT)
        tasks.add(short)
        assert tasks.first() is short


async def test_a_long_task_waits_for_nothing_that_came_after_it_was_due(
    tasks: WaitingTasks, clock: Clock
) -> None:
    long = job(LONG)
    tasks.add(long)
    tasks.add(job(SHORT))
    served: list[Job | None] = []
    while not served or served[-1] is not long:
        tasks.add(job(SHORT))
        served.append(tasks.first())
        clock.now_s += 0.1
    assert abs(clock.now_s - LONG / AGEING_BYTES_PER_S) < 1.0


async def test_equals_are_served_in_the_order_in_which_they_came(tasks: WaitingTasks) -> None:
    jobs = [job(SHORT) for _ in range(20)]
    for each in jobs:
        tasks.add(each)
    assert [tasks.first() for _ in jobs] == jobs
    assert tasks.first() is None


async def test_when_too_much_waits_the_one_due_last_is_refused_and_not_the_short_newcomer(
    tasks: WaitingTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 3)
    long = [job(LONG) for _ in range(3)]
    for each in long:
        tasks.add(each)
    with pytest.raises(QueueFull):
        tasks.add(job(LONG))
    short = job(SHORT)
    tasks.add(short)
    assert [type(each.done.exception()) if each.done.done() else None for each in long] == [
        None,
        None,
        QueueFull,
    ]
    assert tasks.first() is short


async def test_who_has_left_no_longer_counts(
    tasks: WaitingTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING_BYTES", 10)
    gone = job(SHORT, b"0123456789")
    tasks.add(gone)
    with pytest.raises(QueueFull):
        tasks.add(job(SHORT + 1, b"0"))
    tasks.leave(gone)
    tasks.leave(gone)
    tasks.add(job(SHORT, b"0123456789"))
    assert len(tasks) == 1


SERVICE_S = 0.11
"""Of a body of 1,100 empty messages."""


async def served_s(tasks: WaitingTasks, clock: Clock, victim: Job, *, num_strangers: int) -> float:
    """When the victim is given to a worker, for whom strangers always have some waiting."""
    began_s = clock.now_s
    for _ in range(10_000):
        for number in range(num_strangers):
            for _ in range(2):
                with suppress(QueueFull):
                    tasks.add(job(LONG + 1, address=f"stranger {number}"))
        assert not victim.done.done(), "it was refused"
        if tasks.first() is victim:
            return clock.now_s - began_s
        clock.now_s += SERVICE_S
    raise AssertionError("it had no turn")


@pytest.mark.parametrize(("size", "at_most_s"), [(100_000, 1.0), (300_000, 2.0), (1_000_000, 5.0)])
@pytest.mark.parametrize("has_gone_on_for_s", [0, 200])
async def test_who_fills_the_line_without_end_holds_up_the_larger_of_others_by_little(
    tasks: WaitingTasks, clock: Clock, size: int, at_most_s: float, has_gone_on_for_s: int
) -> None:
    for _ in range(300):
        with suppress(QueueFull):
            tasks.add(job(LONG + 1, address="stranger 0"))
    for _ in range(int(has_gone_on_for_s / SERVICE_S)):
        tasks.first()
        tasks.add(job(LONG + 1, address="stranger 0"))
        clock.now_s += SERVICE_S
    victim = job(size, address="victim")
    tasks.add(victim)
    assert await served_s(tasks, clock, victim, num_strangers=1) < at_most_s


async def test_who_was_alone_for_long_waits_no_longer_for_it(
    tasks: WaitingTasks, clock: Clock
) -> None:
    for _ in range(1000):
        tasks.add(job(LONG, address="busy"))
        tasks.first()
        clock.now_s += SERVICE_S
    mine = job(LONG, address="busy")
    tasks.add(mine)
    assert await served_s(tasks, clock, mine, num_strangers=3) < 2.0


async def test_a_long_one_of_one_address_goes_before_newcomers_of_any_other_once_it_is_due(
    tasks: WaitingTasks, clock: Clock
) -> None:
    long = job(LONG, address="patient")
    tasks.add(long)
    for number in range(1000):
        tasks.add(job(SHORT, address=f"new {number}"))
        if tasks.first() is long:
            break
        clock.now_s += 0.1
    assert clock.now_s < LONG / AGEING_BYTES_PER_S + 1.0


async def test_a_short_one_goes_before_long_ones_of_many_other_addresses(
    tasks: WaitingTasks, clock: Clock
) -> None:
    for number in range(200):
        tasks.add(job(LONG, address=f"long {number}"))
    for _ in range(50):
        tasks.first()
        clock.now_s += SERVICE_S
    short = job(SHORT, address="short")
    tasks.add(short)
    assert tasks.first() is short


async def test_when_too_much_waits_somebody_of_who_has_most_is_refused_however_small(
    tasks: WaitingTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 4)
    crowd = [job(SHORT, address="crowd", connection=name) for name in ("a", "b", "b")]
    large = job(1_000_000, address="alone")
    for each in (*crowd, large):
        tasks.add(each)
    tasks.add(job(LONG, address="third"))
    refused = [isinstance(each.done.exception(), QueueFull) for each in crowd if each.done.done()]
    assert refused == [True] and crowd[2].done.done()
    assert not large.done.done()
    with pytest.raises(QueueFull):
        tasks.add(job(SHORT + 1, address="crowd", connection="b"))


async def test_when_the_bytes_are_too_many_whose_address_has_most_of_them_is_refused(
    tasks: WaitingTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING_BYTES", 100)
    few = [job(SHORT, b"x" * 10, address="few") for _ in range(3)]
    most = job(SHORT, b"x" * 60, address="most")
    for each in (*few, most):
        tasks.add(each)
    tasks.add(job(LONG, b"x" * 20, address="new"))
    assert most.done.done() and not any(each.done.done() for each in few)


async def test_what_addresses_have_had_is_forgotten_once_it_is_long_past(
    tasks: WaitingTasks, clock: Clock
) -> None:
    for number in range(5 * waiting.MANY_ADDRESSES):
        tasks.add(job(SHORT, address=str(number)))
        tasks.first()
        clock.now_s += 1.0
    assert len(tasks._served_until_s) <= waiting.MANY_ADDRESSES
    assert tasks._lines == {}


async def test_messages_of_a_body_that_nobody_has_read_yet_count_as_those_of_a_chat() -> None:
    body = b'{"messages":[' + b",".join([b'{"role":"user","content":""}'] * 1100) + b"]}"
    plain = b'{"prompt":"' + b"x" * (len(body) - 13) + b'"}'
    sizes = [
        size_of(ReadLarge(door, 100), b"", each)
        for door, each in ((Door.CHAT, body), (Door.CHAT, plain), (Door.COMPLETION, body))
    ]
    assert sizes[0] - len(body) == 1101 * MESSAGE_BYTES
    assert sizes[1:] == [len(plain) + MESSAGE_BYTES, len(body)]
    chat = inference_pb2.Chat(messages=[inference_pb2.ChatMessage(role="user")] * 3000)
    packed = inference_pb2.GenerateRequest(chat=chat).SerializeToString()
    assert size_of(ReadLarge(Door.GRPC, 100), b"", packed) >= len(packed) + 3000 * MESSAGE_BYTES
    most = size_of(ReadLarge(Door.CHAT, 100), b"", b"{" * 1_000_000)
    assert most == 1_000_000 + MAX_MESSAGES * MESSAGE_BYTES


def trial(text: str, address: str) -> Job:
    """As a lane makes it."""
    task = TryGrammar(Grammar(text, GrammarKind.LARK))
    head = pack_task(task, 0)
    return job(size_of(task, head, b""), address=address)


async def test_short_grammars_that_take_long_hold_up_a_long_one_of_another_address_by_a_few(
    tasks: WaitingTasks, clock: Clock
) -> None:
    """One address keeps 200 of 300 bytes waiting, each a trial of 200 ms; another asks now and then
    for a schema of 8 kB."""
    for _ in range(200):
        tasks.add(trial("x" * 300, "hostile"))
    for _ in range(5):
        for _ in range(7):
            tasks.add(trial("x" * 300, "hostile"))
            assert tasks.first() is not None
            clock.now_s += 0.2
        came_s, honest = clock.now_s, trial("y" * 8192, "honest")
        tasks.add(honest)
        while tasks.first() is not honest:
            tasks.add(trial("x" * 300, "hostile"))
            clock.now_s += 0.2
        assert clock.now_s - came_s <= 0.4


async def test_grammars_of_one_address_are_tried_out_as_they_came(tasks: WaitingTasks) -> None:
    first, second = trial("x" * 30_000, "here"), trial("x", "here")
    tasks.add(first)
    tasks.add(second)
    assert [tasks.first(), tasks.first()] == [first, second]


async def test_pairs_that_are_more_work_than_their_body_says_hold_up_others_as_that_much(
    tasks: WaitingTasks, clock: Clock
) -> None:
    """Bodies of 33 kB of which 2 MiB are made, beside 300 kB of another address."""
    for _ in range(100):
        tasks.add(job(33_000, address="hostile"))
    for _ in range(10):
        tasks.add(job(300_000, address="honest"))
    num_hostile = num_honest = 0
    while num_honest < 10:
        done = tasks.first()
        assert done is not None
        if done.caller.address == "honest":
            num_honest += 1
            tasks.took(done, 300_000)
        else:
            num_hostile += 1
            tasks.took(done, 2 * 1024 * 1024)
        clock.now_s += 1.0
    assert num_hostile <= 3


async def test_what_took_no_more_than_it_was_taken_for_costs_no_more(
    tasks: WaitingTasks,
) -> None:
    for _ in range(2):
        tasks.add(job(1000))
        done = tasks.first()
        assert done is not None
        owed_s = dict(tasks._served_until_s)
        tasks.took(done, 1000)
        assert tasks._served_until_s == owed_s
