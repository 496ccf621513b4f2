"""Answers that nobody reads: how long they stay, and how many bytes of them."""

from __future__ import annotations

import asyncio

import pytest

from router.api.http.protocol import protocol_with
from router.api.http.unread_answers import PROGRESS_BYTES, AnswerWatch, UnreadAnswers
from router.front.limits import DoorLimits
from tests.router.api.http.wire import FakeTransport, Wire
from tests.router.front_fakes import small_limits, until

MB = 1 << 20


class Bench:
    """A watch whose timers the test sets off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.transport = FakeTransport()
        limits = small_limits(reader_timeout_s=30.0)
        self.limits = DoorLimits(
            max_body_bytes=1,
            request_timeout_s=1.0,
            reader_timeout_s=limits.reader_timeout_s,
            clock=lambda: self.now_s,
        )
        self.watch = AnswerWatch(self.transport, self.limits)
        self.due_s: list[float] = []
        monkeypatch.setattr(self.watch, "_arm", lambda delay_s: self.due_s.append(delay_s))

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.watch._look()

    @property
    def is_dropped(self) -> bool:
        return self.transport.has_closed


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_a_whole_answer_that_nobody_reads_is_dropped_after_the_readers_time(
    bench: Bench,
) -> None:
    bench.transport.unread_bytes = 4 * MB
    bench.watch.answered()
    assert bench.due_s == [30.0]
    bench.passes(30.0)
    assert bench.is_dropped


async def test_one_that_is_read_slowly_has_its_time_again_with_each_progress(bench: Bench) -> None:
    bench.transport.unread_bytes = 4 * MB
    bench.watch.answered()
    for _ in range(5):
        bench.transport.unread_bytes -= PROGRESS_BYTES
        bench.passes(30.0)
        assert not bench.is_dropped
    bench.transport.unread_bytes -= PROGRESS_BYTES - 1
    bench.passes(30.0)
    assert bench.is_dropped


async def test_one_that_came_just_before_the_look_has_its_whole_time(bench: Bench) -> None:
    bench.watch.answered()
    bench.now_s = 29.0
    bench.transport.unread_bytes = MB
    bench.watch.begins()
    bench.watch.answered()
    bench.passes(1.0)
    assert not bench.is_dropped and bench.due_s[-1] == 29.0
    bench.passes(29.0)
    assert bench.is_dropped


async def test_what_is_read_and_what_is_still_written_is_left_alone(bench: Bench) -> None:
    bench.watch.answered()
    bench.passes(30.0)
    bench.transport.unread_bytes = MB
    bench.watch.begins()
    bench.passes(30.0)
    assert not bench.is_dropped


async def test_a_connection_keeps_one_timer_however_many_answers_it_has_had() -> None:
    limits = small_limits(reader_timeout_s=0.05)
    wire = Wire(protocol_with(limits))
    wire.may_answer.set()
    for _ in range(3):
        wire.protocol.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        await wire.settle()
    wire.transport.unread_bytes = MB
    wire.protocol.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
    await wire.settle()
    assert not wire.transport.is_closing()
    await until(wire.transport.is_closing, "the unread answer is dropped")


class Reader:
    """A connection with so much unread."""

    def __init__(self, account: UnreadAnswers, host: str, num_bytes: int) -> None:
        self.wire = Wire(host=host)
        self.caller = self.wire.protocol.caller
        self.transport = self.wire.transport
        self.transport.unread_bytes = num_bytes
        account.waits(self)

    @property
    def is_dropped(self) -> bool:
        return self.transport.has_closed


async def test_over_the_bound_the_largest_of_the_address_that_has_most_is_dropped() -> None:
    account = UnreadAnswers(10 * MB)
    alone = Reader(account, "10.0.0.8", 4 * MB)
    crowd = [Reader(account, "10.0.0.7", size * MB) for size in (2, 3, 2)]
    assert [each.is_dropped for each in (alone, *crowd)] == [False, False, True, False]
    assert account.num_bytes == 8 * MB


async def test_what_was_read_meanwhile_is_not_counted_and_a_connection_counts_once() -> None:
    account = UnreadAnswers(10 * MB)
    readers = [Reader(account, "10.0.0.7", 3 * MB) for _ in range(3)]
    for each in readers:
        each.transport.unread_bytes = MB
    account.waits(readers[0])
    last = Reader(account, "10.0.0.7", 7 * MB)
    assert not any(each.is_dropped for each in (*readers, last))
    for each in (*readers, last):
        account.gone(each)
        account.gone(each)
    assert account.num_bytes == 0


async def test_a_full_buffer_counts_until_it_is_drained_or_lost() -> None:
    door = protocol_with(small_limits())
    drained, lost = Wire(door), Wire(door)
    for wire in (drained, lost):
        wire.transport.unread_bytes = MB
        wire.protocol.pause_writing()
    assert door.unread.num_bytes == 2 * MB
    drained.protocol.resume_writing()
    lost.lose()
    assert door.unread.num_bytes == 0
    await asyncio.sleep(0)
