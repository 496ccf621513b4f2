"""Where requests wait for workers that are full: in the router, or at them where it is told so."""

from __future__ import annotations

import asyncio

from cluster.generation import EngineLoad
from cluster.identity import WorkerKey
from router.control.plane import FleetPlane
from tests.router.dispatch_bench import collect, is_idle, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, ended_frame, tokens_frame, until
from tests.router.simulated_fleet import simulated_fleet
from tests.virtual_loop import run_virtually

NUM_REQUESTS = 4


def is_full(plane: FleetPlane) -> None:
    """What the worker says of itself."""
    plane.store.report(WorkerKey("decode-1", "i1"), EngineLoad(total_blocks=8, free_blocks=0))


def end(worker: FakeDecodeWorker, request_id: str) -> None:
    worker.send(tokens_frame(request_id, 5, last=True))
    worker.send(ended_frame(request_id))


async def test_with_the_option_off_nothing_is_held_and_requests_wait_at_a_worker_that_is_full() -> (
    None
):
    worker = FakeDecodeWorker()
    async with router(worker, reserve_room=False) as plane:
        is_full(plane)
        names = [f"r{number}" for number in range(NUM_REQUESTS)]
        asked = [asyncio.create_task(collect(plane, request(name))) for name in names]
        await until(lambda: len(worker.submitted) == NUM_REQUESTS)
        (member,) = plane.fleet.members
        assert (member.room.promised_seqs, member.prompts.num_turns) == (0, 0)
        for name in names:
            end(worker, name)
        await asyncio.gather(*asked)
        await until(lambda: is_idle(plane))


async def test_they_wait_in_the_router_one_after_the_other() -> None:
    worker = FakeDecodeWorker()
    async with router(worker) as plane:
        is_full(plane)
        names = [f"r{number}" for number in range(NUM_REQUESTS)]
        asked = [asyncio.create_task(collect(plane, request(name))) for name in names]
        for number in range(NUM_REQUESTS):
            await until(lambda count=number: len(worker.submitted) == count + 1)
            assert plane.admission.num_running == 1, "the worker has nothing else of ours"
            end(worker, worker.submitted[-1].request_id)
        await asyncio.gather(*asked)
        await until(lambda: is_idle(plane))


async def burst(number: int) -> list[bool]:
    """Whether each of so many that come together was answered."""
    async with simulated_fleet() as fleet:
        for _ in range(number):
            fleet.ask("crowd", prompt_tokens=20, timeout_s=300.0)
        await fleet.all_over()
        assert is_idle(fleet.plane)
        return [each.error is None for each in fleet.outcomes]


def test_a_burst_of_short_prompts_is_taken_as_it_comes() -> None:
    assert all(run_virtually(burst(500)))
