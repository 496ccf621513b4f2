"""More than a fleet can do: who is served, who is not, and how soon everybody knows."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cluster.errors import DeadlineExceeded, NotReady
from tests.router.dispatch_bench import is_idle
from tests.router.simulated_fleet import TOKEN_MS, Outcome, SimulatedFleet, simulated_fleet
from tests.virtual_loop import run_virtually

NUM_PREFILL = 4
CAPACITY = NUM_PREFILL * 1000 / (1000 * TOKEN_MS)
"""Prompts of 1000 tokens that the fleet computes in a second; decode workers have room for more."""
SECONDS = 10.0


async def settle_in(fleet: SimulatedFleet) -> None:
    """Until workers are warm, and their speeds known."""
    for _ in range(30):
        fleet.ask("first", answer_tokens=5)
        await asyncio.sleep(0.05)
    await fleet.all_over()
    fleet.outcomes.clear()


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def victims(flood_per_s: float, num_prefill: int = NUM_PREFILL) -> list[Outcome]:
    async with simulated_fleet(num_prefill=num_prefill) as fleet:
        await settle_in(fleet)
        asking = [fleet.ask_at_random("victim", 5.0, SECONDS)]
        if flood_per_s:
            asking.append(fleet.ask_at_random("flood", flood_per_s, SECONDS, num_salts=1000))
        await asyncio.gather(*asking)
        await fleet.all_over()
        return [each for each in fleet.outcomes if each.tenant == "victim"]


def test_a_flood_of_ten_to_one_with_a_thousand_salts_delays_its_victim_by_half_at_most() -> None:
    quiet, flooded = run_virtually(victims(0.0)), run_virtually(victims(50.0))
    times = [[each.ttft_s for each in found if each.ttft_s] for found in (quiet, flooded)]
    assert all(each.error is None for each in flooded)
    assert p95(times[1]) <= 1.5 * p95(times[0])


async def victim_and_flood(flood_per_s: float) -> tuple[list[Outcome], list[Outcome]]:
    """Where decode workers compute prompts, of one length: nothing but the router's turns keeps
    those from ending together."""
    async with simulated_fleet(num_prefill=0) as fleet:
        await settle_in(fleet)
        end_s, both = asyncio.get_running_loop().time() + 2 * SECONDS, range(1000, 1001)
        asking = [fleet.ask_at_random("victim", 5.0, 2 * SECONDS, prompts=both)]
        if flood_per_s:
            asking.append(
                fleet.ask_at_random("flood", flood_per_s, 2 * SECONDS, prompts=both, num_salts=1000)
            )
        await asyncio.gather(*asking)
        await fleet.all_over()
        victim = [each for each in fleet.outcomes if each.tenant == "victim"]
        in_time = [each for each in fleet.outcomes if each.came_s + each.took_s <= end_s]
        return victim, in_time


def test_a_flood_delays_its_victim_by_half_at_most_where_decode_workers_compute() -> None:
    """More than four workers can do: who comes next waits for the first of them, which is near."""
    quiet, _ = run_virtually(victim_and_flood(0.0))
    flooded, in_time = run_virtually(victim_and_flood(50.0))
    times = [[each.ttft_s for each in found if each.ttft_s] for found in (quiet, flooded)]
    assert all(each.error is None for each in flooded)
    assert p95(times[1]) <= 1.5 * p95(times[0])
    assert len(in_time) >= 0.95 * CAPACITY * 2 * SECONDS, "turns are held back for little"


async def num_in_time(reserve_room: bool, num_prefill: int) -> int:
    """Requests that were over when the last one came."""
    async with simulated_fleet(num_prefill=num_prefill, reserve_room=reserve_room) as fleet:
        await settle_in(fleet)
        end_s = asyncio.get_running_loop().time() + SECONDS
        await fleet.ask_at_random("crowd", 3 * CAPACITY, SECONDS, timeout_s=2.0)
        await fleet.all_over()
        return sum(
            each.error is None and each.came_s + each.took_s <= end_s for each in fleet.outcomes
        )


@pytest.mark.parametrize("num_prefill", [0, NUM_PREFILL])
def test_as_much_is_done_with_room_reserved_as_without(num_prefill: int) -> None:
    with_room, without = (run_virtually(num_in_time(on, num_prefill)) for on in (True, False))
    assert with_room >= without


async def overloaded() -> list[Outcome]:
    async with simulated_fleet(num_prefill=NUM_PREFILL) as fleet:
        await settle_in(fleet)
        await fleet.ask_at_random("crowd", 3 * CAPACITY, SECONDS, timeout_s=2.0)
        await fleet.all_over()
        assert max(worker.most_here for worker in fleet.decode) <= 16, "the queue is in the router"
        assert is_idle(fleet.plane), "what was held is released"
        return fleet.outcomes


def test_three_times_the_capacity_is_served_as_far_as_it_goes_and_the_rest_refused_at_once() -> (
    None
):
    outcomes = run_virtually(overloaded())
    served = [each for each in outcomes if each.error is None]
    refused = [each for each in outcomes if each.error is not None]
    assert len(served) >= 0.9 * CAPACITY * SECONDS
    assert not any(isinstance(each.error, DeadlineExceeded) for each in refused)
    assert all(each.ttft_s is not None and each.ttft_s <= 2.0 for each in served)
    for each in refused:
        assert isinstance(each.error, NotReady) and each.error.retry_after_s is not None
    at_once = [each for each in refused if each.took_s < 0.02]
    assert len(at_once) >= 0.99 * len(refused)
    details = at_once[-1].error.details  # type: ignore[union-attr]
    assert details is not None and set(details) > {"queue_ms", "prefill_ms", "transfer_ms"}


async def shared(weights: dict[str, float]) -> Counter[str]:
    """Tokens of the prompts that were served in ten seconds, by tenant."""
    async with simulated_fleet(num_prefill=NUM_PREFILL) as fleet:
        await settle_in(fleet)
        end_s = asyncio.get_running_loop().time() + SECONDS
        await asyncio.gather(
            *(
                fleet.ask_at_random(tenant, 2 * CAPACITY, SECONDS, weight=weight, timeout_s=3.0)
                for tenant, weight in weights.items()
            )
        )
        await fleet.all_over()
        served: Counter[str] = Counter()
        for each in fleet.outcomes:
            if each.ttft_s is not None and each.came_s + each.ttft_s <= end_s:
                served[each.tenant] += 1
        return served


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0, "c": 2.0}, {"a": 1.0, "b": 4.0}])
def test_tenants_that_want_all_get_their_weights(weights: dict[str, float]) -> None:
    served = run_virtually(shared(weights))
    total, weight_sum = sum(served.values()), sum(weights.values())
    assert total >= 0.9 * CAPACITY * SECONDS
    for tenant, weight in weights.items():
        assert served[tenant] / total == pytest.approx(weight / weight_sum, abs=0.05)
