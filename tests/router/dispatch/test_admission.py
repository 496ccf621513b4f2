"""The bounded door."""

import asyncio

import pytest

from cluster.deadline import Deadline
from cluster.errors import DeadlineExceeded, QueueFull
from router.dispatch.admission import Admission, AdmissionLease
from tests.router.fake_decode_worker import until


def soon() -> Deadline:
    return Deadline.after(30.0)


async def waiting(admission: Admission, tenant: str = "") -> asyncio.Task[AdmissionLease]:
    before = admission.num_queued
    task = asyncio.create_task(admission.admit(tenant, soon()))
    await until(lambda: admission.num_queued == before + 1)
    return task


async def test_places_are_given_in_the_order_of_coming() -> None:
    admission = Admission(1, 10)
    first = await admission.admit("", soon())
    tasks = [await waiting(admission) for _ in range(3)]
    for task in tasks:
        first.release()
        first.release()
        assert admission.num_running <= 1
        first = await task
    first.release()
    assert (admission.num_running, admission.num_queued) == (0, 0)


async def test_tenants_take_turns() -> None:
    admission, order = Admission(1, 10), list[str]()
    lease = await admission.admit("busy", soon())
    tasks = [await waiting(admission, tenant) for tenant in ("busy", "busy", "busy", "calm")]
    for task, tenant in zip(tasks, ("busy-1", "busy-2", "busy-3", "calm-1"), strict=True):
        task.add_done_callback(lambda _, tenant=tenant: order.append(tenant))
    for number in range(4):
        lease.release()
        await until(lambda number=number: len(order) == number + 1)
        lease = next(t for t in tasks if t.done() and t.result()._admission).result()
    lease.release()
    assert order == ["busy-1", "calm-1", "busy-2", "busy-3"]


async def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    admission = Admission(1, 1)
    lease = await admission.admit("", soon())
    task = await waiting(admission)
    with pytest.raises(QueueFull, match="limit") as caught:
        await admission.admit("", soon())
    assert (caught.value.retry_after_s or 0) >= 1.0
    lease.release()
    (await task).release()


async def test_a_deadline_that_passes_in_the_queue_ends_the_request_there() -> None:
    admission = Admission(1, 10)
    lease = await admission.admit("", soon())
    with pytest.raises(DeadlineExceeded, match="queue"):
        await admission.admit("", Deadline.after(0.02))
    with pytest.raises(DeadlineExceeded):
        await admission.admit("", Deadline.after(-1.0))
    assert admission.num_queued == 0
    lease.release()


async def test_a_wait_that_would_outlast_the_deadline_is_refused_at_once() -> None:
    now_s = 0.0

    def clock() -> float:
        return now_s

    admission = Admission(1, 10, clock=clock)
    for _ in range(20):
        with await admission.admit("", Deadline.after(100.0, clock)):
            now_s += 10.0
    lease = await admission.admit("", Deadline.after(100.0, clock))
    with pytest.raises(QueueFull, match="deadline") as caught:
        await admission.admit("", Deadline.after(2.0, clock))
    assert 5 < (caught.value.retry_after_s or 0) < 11
    lease.release()


async def test_a_place_that_is_granted_to_somebody_who_leaves_goes_on_to_the_next() -> None:
    admission = Admission(1, 10)
    lease = await admission.admit("", soon())
    leaver, stayer, other = [await waiting(admission) for _ in range(3)]
    other.cancel()
    lease.release()
    leaver.cancel()  # in the same moment as its grant
    with pytest.raises(asyncio.CancelledError):
        await leaver
    (await stayer).release()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert (admission.num_running, admission.num_queued) == (0, 0)
