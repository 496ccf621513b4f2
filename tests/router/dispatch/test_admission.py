"""The bounded door."""

import asyncio
import time
from dataclasses import dataclass

import pytest

from cluster.deadline import Clock, Deadline
from cluster.errors import DeadlineExceeded, Hopeless, QueueFull
from cluster.identity import WorkerKey
from router.dispatch.admission import Admission
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import Asked
from router.dispatch.fleet_room import Unreserved
from router.dispatch.outlook import Outlook
from router.fleet.need import Need
from router.tenants.priority import Priority
from tests.manual_clock import ManualClock
from tests.router.fake_decode_worker import until


@dataclass(slots=True)
class Foretold:
    """A prospect that is what it is."""

    known: Outlook | None = None
    num_looks: int = 0

    def is_local(self, line_ms: float) -> bool:
        return False

    def cached_tokens(self, key: WorkerKey) -> int:
        return 0

    def outlook(self) -> Outlook | None:
        self.num_looks += 1
        return self.known


def asked_until(deadline: Deadline, tenant: str = "", outlook: Outlook | None = None) -> Asked:
    return Asked(
        tenant=tenant,
        came_s=deadline.clock(),
        deadline=deadline,
        need=Need(),
        prospect=Foretold(outlook),
    )


class Boundless(Unreserved):
    """A fleet that has room for everybody."""


def soon(tenant: str = "", clock: Clock = time.monotonic) -> Asked:
    return asked_until(Deadline.after(30.0, clock), tenant)


async def waiting(
    admission: Admission, tenant: str = "", clock: Clock = time.monotonic
) -> asyncio.Task[AdmissionLease]:
    before = admission.num_queued
    task = asyncio.create_task(admission.admit(soon(tenant, clock)))
    await until(lambda: admission.num_queued == before + 1)
    return task


async def test_places_are_given_in_the_order_of_coming() -> None:
    admission = Admission(1, 10, room=Boundless())
    first = await admission.admit(soon())
    tasks = [await waiting(admission) for _ in range(3)]
    for task in tasks:
        first.release()
        first.release()
        assert admission.num_running <= 1
        first = await task
    first.release()
    assert (admission.num_running, admission.num_queued) == (0, 0)


async def test_tenants_take_turns() -> None:
    admission, order = Admission(1, 10, room=Boundless()), list[str]()
    lease = await admission.admit(soon("busy"))
    tasks = [await waiting(admission, tenant) for tenant in ("busy", "busy", "busy", "calm")]
    for task, tenant in zip(tasks, ("busy-1", "busy-2", "busy-3", "calm-1"), strict=True):
        task.add_done_callback(lambda _, tenant=tenant: order.append(tenant))
    for number in range(4):
        lease.release()
        await until(lambda number=number: len(order) == number + 1)
        lease = next(t for t in tasks if t.done() and t.result()._admission).result()
    lease.release()
    assert order == ["calm-1", "busy-1", "busy-2", "busy-3"]


async def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    admission = Admission(1, 1, room=Boundless())
    lease = await admission.admit(soon())
    task = await waiting(admission)
    with pytest.raises(QueueFull, match="limit") as caught:
        await admission.admit(soon())
    assert (caught.value.retry_after_s or 0) >= 1.0
    lease.release()
    (await task).release()


async def test_a_deadline_that_passes_in_the_queue_ends_the_request_there() -> None:
    admission = Admission(1, 10, room=Boundless())
    lease = await admission.admit(soon())
    with pytest.raises(Hopeless, match="waited until its deadline"):
        await admission.admit(asked_until(Deadline.after(0.02)))
    with pytest.raises(DeadlineExceeded):
        await admission.admit(asked_until(Deadline.after(-1.0)))
    assert admission.num_queued == 0
    lease.release()


async def test_a_wait_that_would_outlast_the_deadline_is_refused_at_once() -> None:
    clock = ManualClock()
    admission = Admission(1, 10, room=Boundless(), clock=clock)
    lease = await admission.admit(soon())
    tasks = [await waiting(admission, clock=clock) for _ in range(4)]
    for task in tasks[:3]:
        clock.advance(5.0)
        lease.release()
        lease = await task
    outlook = Outlook(prefill_ms=3000.0, transfer_ms=500.0)
    asked = asked_until(Deadline.after(15.0, clock), outlook=outlook)
    with pytest.raises(Hopeless, match="deadline is in 15000 ms") as caught:
        await admission.admit(asked)
    told = {"queue_ms": 10_000.0, "prefill_ms": 3000.0, "transfer_ms": 500.0}
    assert caught.value.details == {**told, "deadline_ms": 15_000.0}
    assert caught.value.retry_after_s == 10.0
    unread = ("", Priority.STANDARD, 1.0)
    for bearable in (Deadline.after(7.0, clock), None):
        admission.check_room(*unread, bearable)
    with pytest.raises(Hopeless, match="queue 5000, prefill 0, transfer 0"):
        admission.check_room(*unread, Deadline.after(6.0, clock))  # it would be the first, by now
    lease.release()
    (await tasks[3]).release()
    assert (admission.num_running, admission.num_queued) == (0, 0)


async def test_a_place_that_is_granted_to_somebody_who_leaves_goes_on_to_the_next() -> None:
    admission = Admission(1, 10, room=Boundless())
    lease = await admission.admit(soon())
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


async def test_who_waits_is_not_thrown_out_by_a_newcomer_of_its_tenant_that_is_due_sooner() -> None:
    admission = Admission(1, 1, room=Boundless())
    lease = await admission.admit(soon())
    task = await waiting(admission)
    sooner = asked_until(Deadline.after(5.0))
    with pytest.raises(QueueFull):
        await admission.admit(sooner)
    assert isinstance(sooner.prospect, Foretold)
    assert sooner.prospect.num_looks == 0, "its route is not priced for that"
    lease.release()
    (await task).release()


async def test_a_newcomer_of_another_tenant_has_the_place_in_line_of_who_has_most() -> None:
    admission = Admission(1, 2, room=Boundless())
    lease = await admission.admit(soon("busy"))
    tasks = [await waiting(admission, "busy") for _ in range(2)]
    calm = asyncio.create_task(admission.admit(soon("calm")))
    with pytest.raises(QueueFull):
        await tasks[1]
    lease.release()
    (await calm).release()
    (await tasks[0]).release()
    assert (admission.num_running, admission.num_queued) == (0, 0)


async def test_who_may_wait_by_what_is_foretold_is_not_given_up_at_once() -> None:
    clock = ManualClock()
    admission = Admission(1, 10, room=Boundless(), clock=clock)
    lease = await admission.admit(soon(clock=clock))
    outlook = Outlook(prefill_ms=9_000.0)
    task = asyncio.create_task(
        admission.admit(asked_until(Deadline.after(10.0, clock), outlook=outlook))
    )
    await until(lambda: admission.num_queued == 1)
    lease.release()
    (await task).release()


async def test_a_newcomer_starts_from_the_level_before_the_last_bill_and_not_after_it() -> None:
    """A light tenant's huge prompt does not set the newcomers behind everybody."""
    admission, order = Admission(1, 1000, room=Boundless()), list[str]()

    async def ask(tenant: str, weight: float, tokens: int) -> None:
        asked = Asked(
            tenant=tenant,
            weight=weight,
            came_s=time.monotonic(),
            deadline=Deadline.after(60.0),
            need=Need(1, tokens, 10),
            prospect=Foretold(),
        )
        with await admission.admit(asked):
            order.append(tenant)
            await asyncio.sleep(0)

    first = await admission.admit(soon("first"))
    tasks = [asyncio.create_task(ask("a", 0.1, 20_000))]
    tasks += [asyncio.create_task(ask("b", 1.0, 1000)) for _ in range(100)]
    await until(lambda: admission.num_queued == 101)
    first.release()
    await until(lambda: "a" in order)
    came = len(order)
    await asyncio.gather(ask("c", 1.0, 1000), *tasks)
    assert order.index("c") <= came + 3
