"""Whose the workers' time was, as one router counts it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.membership.memory import MemoryMembership
from protos import fleet_watch_pb2
from router.control.work_message import SLICE, work_to_wire
from router.telemetry import work_ledger
from router.telemetry.request_course import Leg
from router.telemetry.work_ledger import OTHERS, WorkLedger, WorkUnderWay
from tests.router.planes import member_of, prefill_member

DECODE, PREFILL = member_of(Role.DECODE, "d"), prefill_member("p")


class Bench:
    """A ledger, and a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.store = MemoryMembership(10.0, clock=lambda: self.now_s)
        self.ledger = WorkLedger(self.store)

    async def joined(self) -> Bench:
        for member in (DECODE, PREFILL):
            await self.store.join(member)
        return self

    def says(self, member: object = DECODE, **load: float) -> None:
        self.store.report(member.key, EngineLoad(**load))  # type: ignore[attr-defined, arg-type]

    async def told(self) -> dict[str, fleet_watch_pb2.WorkerTime]:
        answer = await work_to_wire(self.ledger, lambda: self.now_s)
        return {each.worker_id: each for each in answer.workers}


async def test_counting_begins_with_a_workers_first_word_and_ends_with_its_last() -> None:
    bench = await Bench().joined()
    bench.says(prefill_busy_s=5.0, decode_busy_s=50.0, prefilled_tokens=100, decoded_tokens=900)
    bench.now_s += 8.0
    bench.says(prefill_busy_s=6.0, decode_busy_s=53.0, prefilled_tokens=140, decoded_tokens=960)
    bench.now_s += 3.0  # silent since
    told = (await bench.told())["d"]
    assert (told.known_s, told.prefill_busy_s, told.decode_busy_s) == (8.0, 1.0, 3.0)
    assert (told.prefilled_tokens, told.decoded_tokens) == (40, 60)
    assert told.is_measured and not told.is_gone


async def test_a_request_is_its_tenants_at_both_of_its_workers() -> None:
    bench = await Bench().joined()
    leg = Leg(DECODE.key, PREFILL.key, bench.now_s)
    work = bench.ledger.begin("acme", leg, lambda: (48, 8))
    work.computed(PREFILL.key, 40)
    bench.now_s += 2.0
    under_way = (await bench.told())["d"].tenants[0]
    leg.over(bench.now_s)
    work.over()
    work.over()  # idempotent
    bench.now_s += 5.0
    (here,), (there,) = (await bench.told())["d"].tenants, (await bench.told())["p"].tenants
    assert here == under_way and here.tenant == there.tenant == "acme"
    assert (here.prefilled_tokens, here.decoded_tokens, there.prefilled_tokens) == (0, 8, 40)
    assert here.kv_block_s == pytest.approx((48 - 4) * 2.0 / 4)
    assert here.num_requests == there.num_requests == 1


async def test_a_prompt_of_nobody_elses_is_the_decode_workers_and_one_not_computed_is_nobodys() -> (
    None
):
    bench = await Bench().joined()
    for computed in (True, False):
        leg = Leg(DECODE.key, None, bench.now_s)
        work = bench.ledger.begin("", leg, lambda: (10, 0))
        if computed:
            work.computed(DECODE.key, 10)
        leg.over(bench.now_s)
        work.over()
    (told,) = (await bench.told())["d"].tenants
    assert (told.num_requests, told.prefilled_tokens) == (2, 10)
    assert not (await bench.told())["d"].is_measured  # it has said nothing of its steps


async def test_a_worker_that_left_is_told_of_and_goes_on_where_it_was_when_it_was_only_silent() -> (
    None
):
    bench = await Bench().joined()
    bench.says(decode_busy_s=1.0)
    bench.now_s += 4.0
    bench.says(decode_busy_s=3.0)
    await bench.store.leave(DECODE.key)
    assert (await bench.told())["d"].is_gone and (await bench.told())["d"].decode_busy_s == 2.0
    await bench.store.join(DECODE)
    bench.now_s += 1.0
    bench.says(decode_busy_s=3.5)
    assert not (await bench.told())["d"].is_gone
    assert ((await bench.told())["d"].decode_busy_s, (await bench.told())["d"].known_s) == (
        2.5,
        5.0,
    )
    await bench.store.join(replace(DECODE, incarnation="i2"))
    answer = (await work_to_wire(bench.ledger, lambda: bench.now_s)).workers
    assert [(each.incarnation, each.is_gone) for each in answer if each.worker_id == "d"] == [
        ("i1", True),
        ("i2", False),
    ]


async def test_what_is_kept_has_bounds_and_says_what_it_forgot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_ledger, "MAX_GONE", 2)
    monkeypatch.setattr(work_ledger, "MAX_TENANTS", 2)
    bench = await Bench().joined()
    for tenant in "abca":
        leg = Leg(DECODE.key, None, bench.now_s, ended_s=bench.now_s)
        bench.ledger.begin(tenant, leg, lambda: (1, 1)).over()
    requests = {each.tenant: each.num_requests for each in (await bench.told())["d"].tenants}
    assert requests == {"a": 2, "b": 1, OTHERS: 1}
    for number in range(4):
        await bench.store.join(replace(DECODE, incarnation=f"next-{number}"))
    assert bench.ledger.num_forgotten == 2


def worked(bench: Bench, tenant: str, computed_at: WorkerKey | None = None) -> WorkUnderWay:
    leg = Leg(DECODE.key, computed_at, bench.now_s)
    work = bench.ledger.begin(tenant, leg, lambda: (2, 1))
    if computed_at is not None:
        work.computed(computed_at, 10)
    return work


async def test_a_fleets_tenants_are_told_in_slices_between_which_others_have_the_loop() -> None:
    bench, others = await Bench().joined(), [prefill_member(f"p{number}") for number in range(20)]
    for member in others:
        await bench.store.join(member)
        for number in range(100):
            worked(bench, f"t{number}", member.key).over()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    told = await bench.told()
    counting.cancel()
    assert sum(len(told[member.worker_id].tenants) for member in others) == 2000
    assert turns >= 2000 // (SLICE + 100)


async def test_a_request_that_ends_while_workers_are_told_of_counts_once_at_each() -> None:
    bench = await Bench().joined()
    work = worked(bench, "acme", PREFILL.key)
    accounts = bench.ledger.accounts(lambda: bench.now_s)
    first = next(accounts)
    work.over()
    told = {each.key: each.tenants["acme"].num_requests for each in (first, *accounts)}
    assert told == {DECODE.key: 1, PREFILL.key: 1}


async def test_what_was_told_is_not_what_is_counted_on() -> None:
    bench = await Bench().joined()
    worked(bench, "acme").over()
    (before, _) = bench.ledger.accounts(lambda: bench.now_s)
    worked(bench, "acme")
    (now, _) = bench.ledger.accounts(lambda: bench.now_s)
    worked(bench, "acme").over()
    assert [each.tenants["acme"].num_requests for each in (before, now)] == [1, 2]
    (after, _) = bench.ledger.accounts(lambda: bench.now_s)
    assert after.tenants["acme"].num_requests == 3
