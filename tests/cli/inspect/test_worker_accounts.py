"""Tenants' time, nobody's and idle time are the workers' time, whatever routers tell."""

from __future__ import annotations

import random

import pytest

from cli.inspect.worker_accounts import (
    NO_KEY,
    UNACCOUNTED,
    WorkerBill,
    accounts_of,
    totals_by_tenant,
)
from protos import fleet_watch_pb2
from tests.cli.inspect.made_up_work import worked_for_two_tenants

Told = fleet_watch_pb2.WorkerTime
Work = fleet_watch_pb2.TenantWork


def answer(*workers: Told) -> fleet_watch_pb2.WorkResponse:
    return fleet_watch_pb2.WorkResponse(workers=workers)


def assert_nothing_is_lost(account: WorkerBill, told: Told) -> None:
    parts = account.parts.values()
    assert sum(part.prefill_s for part in parts) == pytest.approx(told.prefill_busy_s)
    assert sum(part.decode_s for part in parts) == pytest.approx(told.decode_busy_s)
    assert account.busy_s + account.idle_s == pytest.approx(account.known_s)


def test_seconds_go_by_tokens_and_what_nobody_asked_for_is_said() -> None:
    prefill, decode = accounts_of([worked_for_two_tenants()])
    assert prefill.parts["acme"].prefill_s == pytest.approx(600.0)
    assert prefill.parts[NO_KEY].prefill_s == pytest.approx(300.0)
    assert UNACCOUNTED not in prefill.parts and prefill.idle_s == pytest.approx(2700.0)
    assert decode.parts["acme"].decode_s == pytest.approx(1200.0)
    assert decode.parts["acme"].prefill_s == pytest.approx(100.0)
    assert decode.parts[UNACCOUNTED].decode_s == pytest.approx(200.0)
    totals = totals_by_tenant([prefill, decode])
    assert list(totals) == ["acme", NO_KEY, UNACCOUNTED]
    assert totals["acme"].busy_s == pytest.approx(1900.0) and totals["acme"].requests == 1850


def test_a_worker_that_two_routers_know_counts_once_and_its_tenants_add_up() -> None:
    known = {"worker_id": "d", "incarnation": "i", "role": "decode", "is_measured": True}
    older = Told(
        **known, known_s=100.0, decode_busy_s=50.0, decoded_tokens=500,
        tenants=[Work(tenant="a", decoded_tokens=100)],
    )  # fmt: skip
    younger = Told(
        **known, known_s=40.0, decode_busy_s=20.0, decoded_tokens=200,
        tenants=[Work(tenant="a", decoded_tokens=100), Work(tenant="b", decoded_tokens=50)],
    )  # fmt: skip
    for order in ([older, younger], [younger, older]):
        (account,) = accounts_of(map(answer, order))
        assert account.known_s == 100.0 and account.busy_s == pytest.approx(50.0)
        assert account.parts["a"].decode_s == pytest.approx(20.0)
        assert account.parts["b"].decode_s == pytest.approx(5.0)
        assert account.parts[UNACCOUNTED].decode_s == pytest.approx(25.0)


def test_another_process_under_the_same_id_is_another_account() -> None:
    first = Told(worker_id="d", incarnation="1", role="decode", known_s=5.0, is_gone=True)
    second = Told(worker_id="d", incarnation="2", role="decode", known_s=7.0)
    assert [each.known_s for each in accounts_of([answer(first, second)])] == [5.0, 7.0]


def test_seconds_without_tokens_are_nobodys() -> None:
    told = Told(worker_id="d", role="decode", known_s=9.0, prefill_busy_s=2.0, decode_busy_s=1.0)
    (account,) = accounts_of([answer(told)])
    assert account.parts[UNACCOUNTED].busy_s == 3.0
    assert_nothing_is_lost(account, told)


@pytest.mark.parametrize("seed", range(50))
def test_all_time_is_somebodys_whatever_is_told(seed: int) -> None:
    draw = random.Random(seed)
    tenants = [
        Work(
            tenant=tenant,
            prefilled_tokens=draw.choice([0, 7, 900]),
            decoded_tokens=draw.choice([0, 5, 80]),
        )
        for tenant in ("", "a", "b")[: draw.randint(0, 3)]
    ]
    told = Told(
        worker_id="d",
        role="decode",
        known_s=draw.choice([0.0, 1.0, 50.0]),
        prefill_busy_s=draw.choice([0.0, 3.0]),
        decode_busy_s=draw.choice([0.0, 4.0]),
        prefilled_tokens=draw.choice([0, 600]),
        decoded_tokens=draw.choice([0, 60]),
        tenants=tenants,
    )
    (account,) = accounts_of([answer(told)])
    assert_nothing_is_lost(account, told)
    assert account.idle_s >= 0 and account.known_s >= told.known_s
