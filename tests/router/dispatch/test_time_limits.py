"""Every wait of a request is bounded; a long healthy stream is not."""

import asyncio
import time

import pytest
from msgspec import structs

from cluster.errors import DeadlineExceeded
from router.dispatch.time_limits import DefaultTimes, ProgressWatch
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import (
    FakeDecodeWorker,
    ended_frame,
    tokens_frame,
    until,
)

PATIENT_S, BRIEF_S = 60.0, 0.15


def limited(*, first_token_s: float, between_tokens_s: float, asked_s: float | None = None):
    times = DefaultTimes(first_token_s=first_token_s, between_tokens_s=between_tokens_s)
    return structs.replace(request(), limits=times.limits(time.monotonic(), asked_s))


def test_limits_count_from_the_first_byte_and_then_from_the_last_token():
    times = DefaultTimes(first_token_s=300.0, between_tokens_s=20.0)
    limits = times.limits(1000.0, None)
    assert limits.after(None).at_s == 1300.0
    assert limits.after(1299.0).at_s == 1319.0
    assert limits.after(9000.0).at_s == 9020.0


def test_a_clients_own_deadline_covers_everything_and_replaces_the_default():
    limits = DefaultTimes(first_token_s=300.0, between_tokens_s=20.0).limits(1000.0, 600.0)
    assert limits.after(None).at_s == 1600.0
    assert limits.after(1590.0).at_s == 1600.0


def test_another_worker_has_as_long_for_its_first_token_and_a_clients_deadline_stays() -> None:
    now_s = [1000.0]
    times = DefaultTimes(first_token_s=300.0, between_tokens_s=20.0, clock=lambda: now_s[-1])
    limits, asked = times.limits(1000.0, None), times.limits(1000.0, 600.0)
    now_s.append(1500.0)
    for again in (limits.begun_again(), limits.going_on()):
        assert again.after(None).at_s == 1800.0
        assert again.after(1790.0).at_s == 1810.0
    for again in (asked.begun_again(), asked.going_on()):
        assert again.after(None).at_s == again.whole.at_s == 1600.0


async def test_a_stream_that_goes_on_outlives_the_limit_to_its_first_token():
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        asked = limited(first_token_s=BRIEF_S, between_tokens_s=PATIENT_S)
        running = asyncio.create_task(collect(plane, asked))
        await until(lambda: worker.submitted)
        worker.send(tokens_frame("r1", 5))
        await until(lambda: asked.limits.to_first_token.has_passed)
        worker.send(tokens_frame("r1", 6, last=True))
        worker.send(ended_frame("r1", made=2))
        assert len(await running) == 3
        assert worker.submitted[0].timeout_ms > 3_600_000
        assert 1.0 <= worker.submitted[0].first_token_ms <= BRIEF_S * 1000


async def test_a_first_token_that_does_not_come_ends_the_request_and_is_cancelled_there():
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        with pytest.raises(DeadlineExceeded, match="no token came within 0.15 s"):
            await collect(plane, limited(first_token_s=BRIEF_S, between_tokens_s=PATIENT_S))
        await until(lambda: worker.cancelled == ["r1"])


async def test_a_stream_that_stands_still_ends_whatever_its_deadline():
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        asked = limited(first_token_s=PATIENT_S, between_tokens_s=BRIEF_S, asked_s=PATIENT_S)
        running = asyncio.create_task(collect(plane, asked))
        await until(lambda: worker.submitted)
        worker.send(tokens_frame("r1", 5))
        with pytest.raises(DeadlineExceeded, match="no token came for 0.15 s"):
            await running
        await until(lambda: worker.cancelled == ["r1"])


async def test_a_loop_that_stood_reads_what_has_arrived_before_it_gives_a_stream_up():
    last_token_s, late = [time.monotonic()], list[DeadlineExceeded]()
    limits = limited(first_token_s=PATIENT_S, between_tokens_s=BRIEF_S).limits
    watch = ProgressWatch(limits, lambda: last_token_s[-1], late.append, stands=lambda: False)
    time.sleep(4 * BRIEF_S)  # the loop stands; the token that came meanwhile is read a little later
    for _ in range(5):
        await asyncio.sleep(0)
    assert late == []
    last_token_s.append(time.monotonic())
    await until(lambda: late)
    assert time.monotonic() - last_token_s[-1] >= BRIEF_S
    watch.stop()


async def test_a_clients_own_deadline_passes_while_the_loop_stands():
    late = list[DeadlineExceeded]()
    limits = limited(first_token_s=PATIENT_S, between_tokens_s=PATIENT_S, asked_s=BRIEF_S).limits
    watch = ProgressWatch(limits, lambda: None, late.append, stands=lambda: True)
    time.sleep(2 * BRIEF_S)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [type(error) for error in late] == [DeadlineExceeded]
    watch.stop()


async def test_a_clients_deadline_ends_a_stream_that_goes_on():
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        asked = limited(first_token_s=PATIENT_S, between_tokens_s=PATIENT_S, asked_s=2 * BRIEF_S)
        running = asyncio.create_task(collect(plane, asked))
        await until(lambda: worker.submitted)
        worker.send(tokens_frame("r1", 5))
        with pytest.raises(DeadlineExceeded, match="deadline of 0.3 s passed"):
            await running
