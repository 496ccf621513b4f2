"""Clients that leave while they wait or run: every place is somebody's, or free."""

import asyncio
from random import Random

import pytest

from cluster.deadline import Deadline
from cluster.identity import WorkerKey
from router.dispatch.admission import Admission
from router.dispatch.asked import Asked, Prospect
from router.dispatch.fleet_room import Lack, Unreserved
from router.dispatch.outlook import Outlook
from router.fairness.counters import MemoryCounters
from router.fairness.shares import LEAST_CHARGE, Shares
from router.fleet.need import Need
from router.fleet.room_part import RoomPart
from router.fleet.worker_room import WorkerRoom
from router.tenants.priority import Priority
from tests.router.fake_decode_worker import until

NUM_SEATS = 4


class OneWorker(Unreserved):
    """What one worker can hold, and how many places of it nobody has used yet. Nobody passes."""

    lacks = Lack.TURN

    def __init__(self) -> None:
        self.room = WorkerRoom(NUM_SEATS, 16)
        self.num_granted = 0

    def take(self, asked: Asked, line_ms: float) -> RoomPart | None:  # type: ignore[override]
        if not self.room.has(asked.need):
            return None
        asked.prospect.is_local(line_ms)
        self.num_granted += 1
        return RoomPart(asked.need, self.room)

    def is_used(self) -> None:
        self.num_granted -= 1


class Unknown:
    """A prospect of which nothing is known."""

    def is_local(self, line_ms: float) -> bool:
        return False

    def cached_tokens(self, key: WorkerKey) -> int:
        return 0

    def outlook(self) -> Outlook | None:
        return None


class Broken(Unknown):
    """Whose route cannot be decided, by our fault."""

    def is_local(self, line_ms: float) -> bool:
        raise ValueError("no route")


def asked(num_seqs: int = 1, prospect: Prospect | None = None) -> Asked:
    need = Need(num_seqs, 10, 10)
    deadline = Deadline.after(60.0)
    return Asked(
        came_s=deadline.clock(), deadline=deadline, need=need, prospect=prospect or Unknown()
    )


async def client(admission: Admission, leaves: asyncio.Event) -> None:
    with await admission.admit(asked()) as lease:
        lease.goes_to(None)
        lease.computed()
        await leaves.wait()


async def test_who_leaves_in_the_moment_of_its_grant_pays_for_no_prompt() -> None:
    admission = Admission(1024, 256, room=OneWorker())
    lease = await admission.admit(asked(NUM_SEATS))
    leaver = asyncio.create_task(admission.admit(asked()))
    await until(lambda: admission.num_queued == 1)
    counters = admission._line.shares_of(Priority.STANDARD.level)._counters
    before = counters.of("")
    lease.release()
    assert counters.of("") == before + 10
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert counters.of("") == before + LEAST_CHARGE


class BrokenCounters(MemoryCounters):
    """Whose store fails, by our fault."""

    def lift(self, tenant: str, least: float) -> None:
        raise ValueError("no counter")


async def test_what_fails_where_nobody_waits_holds_nothing() -> None:
    room = OneWorker()
    admission = Admission(4, 4, room=room, shares=lambda level: Shares(BrokenCounters()))
    with pytest.raises(ValueError, match="no counter"):
        await admission.admit(asked())
    assert (admission.num_running, room.num_granted, room.room.promised_seqs) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(40))
async def test_clients_that_leave_in_any_order_leave_all_places_to_who_comes_after(
    seed: int,
) -> None:
    chance, room, leaves = Random(seed), OneWorker(), asyncio.Event()
    admission = Admission(1024, 256, room=room)
    tasks = [asyncio.create_task(client(admission, leaves)) for _ in range(12)]
    await until(lambda: (admission.num_running, admission.num_queued) == (NUM_SEATS, 8))
    order = chance.sample(tasks, chance.randrange(1, 13))
    for task in order:
        task.cancel()
        if chance.random() < 0.3:
            admission.look()  # a worker beats
        if chance.random() < 0.2:
            await asyncio.sleep(0)
    leaves.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
    assert (admission.num_running, admission.num_unused, admission.num_queued) == (0, 0, 0)
    assert (room.num_granted, room.room.promised_seqs, room.room.promised_tokens) == (0, 0, 0)


async def test_what_fails_for_one_who_waits_is_told_to_it_and_to_nobody_who_made_room() -> None:
    room = OneWorker()
    admission = Admission(1024, 256, room=room)
    lease = await admission.admit(asked(NUM_SEATS))
    broken = asyncio.create_task(admission.admit(asked(prospect=Broken())))
    after = asyncio.create_task(admission.admit(asked()))
    await until(lambda: admission.num_queued == 2)
    lease.release()
    with pytest.raises(ValueError, match="no route"):
        await broken
    (await after).release()
    assert (admission.num_running, room.num_granted, room.room.promised_seqs) == (0, 0, 0)


async def test_who_waits_behind_one_that_leaves_gets_the_room_that_was_too_small_for_it() -> None:
    admission = Admission(1024, 256, room=OneWorker())
    lease = await admission.admit(asked(2))
    large = asyncio.create_task(admission.admit(asked(NUM_SEATS)))
    small = asyncio.create_task(admission.admit(asked(1)))
    await until(lambda: admission.num_queued == 2)
    large.cancel()
    (await small).release()
    lease.release()
    assert large.cancelled()
    assert admission.num_running == 0
