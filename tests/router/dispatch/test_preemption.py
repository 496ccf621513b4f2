"""A higher class gets the place of a lower one whose client has nothing yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from cluster.deadline import Deadline
from cluster.generation import EngineLoad, Usage
from router.control.plane import FleetPlane
from router.dispatch.admission import Admission
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import PROMOTED_AFTER_S, Asked
from router.dispatch.fleet_room import Lack
from router.dispatch.stream import ChoiceTokens, Completed, RoutedRequest
from router.fairness.shares import ANSWER_WEIGHT
from router.fleet.need import Need
from router.fleet.room_part import RoomPart
from router.fleet.worker_room import WorkerRoom
from router.tenants.priority import Priority
from tests.router.dispatch.test_admission import Boundless, Foretold
from tests.router.dispatch_bench import collect, is_idle, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until
from tests.router.simulated_fleet import SimulatedFleet, simulated_fleet
from tests.virtual_loop import run_virtually
from tests.virtual_time import settle


def asked_by(priority: Priority) -> Asked:
    deadline = Deadline.after(30.0)
    return Asked(
        priority=priority,
        came_s=deadline.clock(),
        deadline=deadline,
        need=Need(),
        prospect=Foretold(),
    )


@dataclass(eq=False)
class Computing:
    """A request at its workers, with nothing of its answer."""

    lease: AdmissionLease
    request_id: str
    priority: Priority = Priority.BATCH
    may: bool = True
    gave_way_to: list[Priority] = field(default_factory=list)
    part: RoomPart = field(init=False)

    def __post_init__(self) -> None:
        self.part = self.lease.part

    def may_give_way(self) -> bool:
        return self.may

    def give_way(self, to: Priority) -> None:
        self.gave_way_to.append(to)
        self.lease.release()


async def at_work(
    admission: Admission, name: str, priority: Priority, may: bool = True
) -> Computing:
    working = Computing(await admission.admit(asked_by(priority)), name, priority, may)
    admission.preemption.add(working)
    return working


async def test_the_last_that_came_of_the_lowest_class_gives_way() -> None:
    admission = Admission(4, 10, room=Boundless())
    standard = await at_work(admission, "standard", Priority.STANDARD)
    old, new = [await at_work(admission, name, Priority.BATCH) for name in ("old", "new")]
    kept = await at_work(admission, "kept", Priority.BATCH, may=False)
    await admission.admit(asked_by(Priority.INTERACTIVE))
    assert new.gave_way_to == [Priority.INTERACTIVE] and admission.num_running == 4
    await admission.admit(asked_by(Priority.INTERACTIVE))
    await admission.admit(asked_by(Priority.INTERACTIVE))
    assert (len(old.gave_way_to), len(standard.gave_way_to), len(kept.gave_way_to)) == (1, 1, 0)
    assert admission.preemption.num_waiting == 0


@pytest.mark.parametrize("priority", [Priority.STANDARD, Priority.BATCH])
async def test_nobody_gives_way_to_its_own_class_or_a_lower_one(priority: Priority) -> None:
    admission = Admission(1, 10, room=Boundless())
    working = await at_work(admission, "working", Priority.STANDARD)
    waiting = asyncio.create_task(admission.admit(asked_by(priority)))
    await until(lambda: admission.num_queued == 1)
    assert not working.gave_way_to
    working.lease.release()
    (await waiting).release()


def test_only_who_makes_enough_room_gives_way() -> None:
    room, other = WorkerRoom(2, 16), WorkerRoom(2, 16)
    small, large = Need(num_seqs=1), Need(num_seqs=2)
    part, beside = RoomPart(small, room), RoomPart(small, room)
    assert part.makes_room_for(small) and not part.makes_room_for(large)
    assert (room.promised_seqs, other.promised_seqs) == (2, 0), "the question changes nothing"
    beside.release()
    assert part.makes_room_for(large)


def test_who_is_asked_to_give_way_leaves_the_room_as_it_was_counted() -> None:
    room, num_made = WorkerRoom(0, 16), 0
    asked, beside = [RoomPart(Need(answer_tokens=160), room) for _ in range(2)]
    for part in (asked, beside):
        part.makes(lambda: num_made)
        part.computed()
    num_made = 80
    room.heard(EngineLoad(total_blocks=100, free_blocks=20))
    assert not asked.makes_room_for(Need(answer_tokens=250))
    assert room.promised_tokens == 160, "what both have still to make"
    assert room.has(Need(answer_tokens=160)) and not room.has(Need(answer_tokens=161))


@dataclass(eq=False)
class Lacking(Boundless):
    """A fleet that has no room, for one reason."""

    lacks: Lack = Lack.TURN
    useless: frozenset[RoomPart] = frozenset()
    is_open: bool = True

    def take(self, asked: Asked, line_ms: float) -> RoomPart | None:  # type: ignore[override]
        return super().take(asked, line_ms) if self.is_open else None

    def in_vain(self, need: Need) -> frozenset[RoomPart]:
        return self.useless


async def gave_way(room: Lacking, seats: WorkerRoom, *, max_running: int) -> int:
    """Of eight of the lowest class, for one of the highest that gets nothing all the same."""
    admission = Admission(max_running, 10, room=room)
    working = [await at_work(admission, f"batch-{number}", Priority.BATCH) for number in range(8)]
    for each in working:
        each.part = RoomPart(Need(), seats)
    room.is_open = False
    room.useless = seats.parts if room.useless else frozenset()
    waiting = asyncio.create_task(admission.admit(asked_by(Priority.INTERACTIVE)))
    await until(lambda: admission.num_queued == 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return sum(len(each.gave_way_to) for each in working)


async def test_nobody_gives_way_where_a_turn_or_a_kept_worker_is_all_that_is_lacking() -> None:
    for lack in (Lack.TURN, Lack.KEPT):
        assert await gave_way(Lacking(lack), WorkerRoom(8, 16), max_running=9) == 0
        assert await gave_way(Lacking(lack), WorkerRoom(8, 16), max_running=8) == 1, "its place"
    assert await gave_way(Lacking(Lack.SEATS), WorkerRoom(8, 16), max_running=9) == 8


async def test_nobody_gives_way_at_a_worker_that_has_room_already_and_does_not_take_it() -> None:
    useless = frozenset({RoomPart(Need(), None)})
    room = Lacking(Lack.SEATS, useless)
    assert await gave_way(room, WorkerRoom(9, 16), max_running=9) == 0


def classed(name: str, priority: Priority) -> RoutedRequest:
    return structs.replace(request(name), priority=priority)


def end(worker: FakeDecodeWorker, attempt_id: str) -> None:
    worker.send(tokens_frame(attempt_id, 7, 8, last=True))
    worker.send(ended_frame(attempt_id, made=2))


def preempted(plane: FleetPlane) -> float | None:
    name = "splitserve_preempted_requests_total"
    return plane.registry.get_sample_value(name, {"class": "batch"})


async def test_it_comes_again_under_another_name_to_the_same_worker_and_is_answered_once() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1) as plane:
        batch = asyncio.create_task(collect(plane, classed("slow", Priority.BATCH)))
        await until(lambda: len(worker.submitted) == 1)
        quick = asyncio.create_task(collect(plane, classed("quick", Priority.INTERACTIVE)))
        await until(lambda: len(worker.submitted) == 2)
        assert worker.cancelled == ["slow"] and worker.submitted[1].request_id == "quick"
        end(worker, "quick")
        await quick
        await until(lambda: len(worker.submitted) == 3)
        again = worker.submitted[2]
        assert again.request_id == "slow~2" and again.token_ids == worker.submitted[0].token_ids
        worker.send(tokens_frame("slow", 1, 2, last=True))  # it had not heard the cancel yet
        worker.send(ended_frame("slow"))
        end(worker, "slow~2")
        *tokens, completed = await batch
        assert [t.token_id for e in tokens if isinstance(e, ChoiceTokens) for t in e.tokens] == [
            7,
            8,
        ]
        assert isinstance(completed, Completed) and completed.usage == Usage(8, 2, 0)
        shares = plane.admission._line.shares_of(Priority.BATCH.level)
        assert shares._counters.of("") == 9 + ANSWER_WEIGHT * 2, "its prompt is charged once"
        assert preempted(plane) == 1
        decision = plane.decisions.find("slow")
        assert decision is not None and "gave its place at decode-1" in decision.notes[-1]
        await until(lambda: is_idle(plane))
        assert plane.admission.preemption.num_waiting == 0


async def test_who_has_given_way_once_or_has_a_token_keeps_its_place() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1) as plane:
        batch = asyncio.create_task(collect(plane, classed("slow", Priority.BATCH)))
        await until(lambda: len(worker.submitted) == 1)
        quick = [
            asyncio.create_task(collect(plane, classed(f"q{number}", Priority.INTERACTIVE)))
            for number in range(2)
        ]
        for number in range(2):
            await until(lambda count=number: len(worker.submitted) == count + 2)  # type: ignore[misc]
            end(worker, worker.submitted[-1].request_id)
        await asyncio.gather(*quick)
        await until(lambda: len(worker.submitted) == 4)
        late = asyncio.create_task(collect(plane, classed("q9", Priority.INTERACTIVE)))
        await until(lambda: plane.admission.num_queued == 1)
        assert worker.cancelled == ["slow"], "it has given way as often as it may"
        end(worker, "slow~2")
        await batch
        await until(lambda: len(worker.submitted) == 5)
        end(worker, "q9")
        await late
        await until(lambda: is_idle(plane))


async def test_who_came_so_long_ago_that_it_is_promoted_keeps_its_place() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1) as plane:
        old = classed("old", Priority.BATCH)
        came_s = old.limits.arrived_s - PROMOTED_AFTER_S
        old = structs.replace(old, limits=structs.replace(old.limits, arrived_s=came_s))
        promoted = asyncio.create_task(collect(plane, old))
        await until(lambda: len(worker.submitted) == 1)
        quick = asyncio.create_task(collect(plane, classed("quick", Priority.INTERACTIVE)))
        await until(lambda: plane.admission.num_queued == 1)
        assert not worker.cancelled
        end(worker, "old")
        await promoted
        await until(lambda: len(worker.submitted) == 2)
        end(worker, "quick")
        await quick


async def test_with_a_token_at_the_router_a_request_keeps_its_place() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1) as plane:
        admission = plane.admission
        batch = asyncio.create_task(collect(plane, classed("slow", Priority.BATCH)))
        await until(lambda: len(worker.submitted) == 1 and admission.preemption.num_waiting == 1)
        worker.send(tokens_frame("slow", 7))
        await until(lambda: admission.preemption.num_waiting == 0)
        quick = asyncio.create_task(collect(plane, classed("quick", Priority.INTERACTIVE)))
        await until(lambda: admission.num_queued == 1)
        worker.send(tokens_frame("slow", 8, last=True))
        worker.send(ended_frame("slow", made=2))
        await batch
        await until(lambda: len(worker.submitted) == 2)
        end(worker, "quick")
        await quick
        assert not worker.cancelled and not preempted(plane)


async def test_who_leaves_while_it_waits_to_come_again_leaves_nothing_behind() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1) as plane:
        batch = asyncio.create_task(collect(plane, classed("slow", Priority.BATCH)))
        await until(lambda: len(worker.submitted) == 1)
        quick = asyncio.create_task(collect(plane, classed("quick", Priority.INTERACTIVE)))
        await until(lambda: plane.admission.num_queued == 1 and len(worker.submitted) == 2)
        batch.cancel()
        await asyncio.gather(batch, return_exceptions=True)
        end(worker, "quick")
        await quick
        assert len(worker.submitted) == 2
        await until(lambda: is_idle(plane))


async def test_it_comes_back_though_the_line_is_full() -> None:
    worker = FakeDecodeWorker()
    async with router(worker, max_running_requests=1, max_queued_requests=1) as plane:
        batch = [asyncio.create_task(collect(plane, classed("slow", Priority.BATCH)))]
        await until(lambda: len(worker.submitted) == 1)
        quick = asyncio.create_task(collect(plane, classed("quick", Priority.INTERACTIVE)))
        await until(lambda: len(worker.submitted) == 2)
        await until(lambda: plane.admission.num_queued == 1)
        end(worker, "quick")
        await quick
        await until(lambda: len(worker.submitted) == 3)
        end(worker, "slow~2")
        await asyncio.gather(*batch)


async def mixed(fleet: SimulatedFleet) -> None:
    """Long prompts of a lower class all along, and short ones of the highest."""
    for _ in range(40):
        fleet.ask("bulk", prompt_tokens=8000, priority=Priority.BATCH, timeout_s=300.0)
    for _ in range(40):
        await asyncio.sleep(0.2)
        fleet.ask("person", prompt_tokens=200, priority=Priority.INTERACTIVE)
    await fleet.all_over()


async def first_tokens(max_preemptions: int) -> tuple[float, int, float]:
    """The longest wait of the highest class, how many were answered, and how many gave way."""
    async with simulated_fleet(
        num_prefill=1, num_decode=2, max_running_requests=2, max_preemptions=max_preemptions
    ) as fleet:
        await mixed(fleet)
        waits = [each.ttft_s for each in fleet.outcomes if each.tenant == "person" and each.ttft_s]
        assert is_idle(fleet.plane)
        num_whole = sum(each.num_tokens == 10 for each in fleet.outcomes)
        return max(waits), num_whole, preempted(fleet.plane) or 0.0


def test_persons_do_not_wait_for_long_prompts_and_every_long_prompt_is_answered() -> None:
    waits_s, num_whole, num_gave_way = run_virtually(first_tokens(1))
    without_s, _, none = run_virtually(first_tokens(0))
    assert num_whole == 80 and 0 < num_gave_way <= 40 and none == 0
    assert waits_s < without_s


async def test_who_may_give_way_is_asked_when_it_matters_and_not_only_when_it_came() -> None:
    admission = Admission(1, 10, room=Boundless())
    promoted = await at_work(admission, "promoted", Priority.BATCH)
    promoted.may = False
    asking = asyncio.create_task(admission.admit(asked_by(Priority.INTERACTIVE)))
    await settle()
    assert not promoted.gave_way_to and not asking.done()
    promoted.lease.release()
    await asking
