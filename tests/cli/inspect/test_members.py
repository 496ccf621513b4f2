"""What `get`, `describe` and `blocks` say of members."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.inspect.fake_router import FakeRouter, run


def test_workers_are_listed_by_role_and_name_with_a_heading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "workers")
    assert done.exit_code == 0, done.output
    heading, *rows = done.stdout.splitlines()
    names = ("WORKER", "ROLE", "STATE", "RUNNING", "WAITING", "KV USED", "BEAT AGE")
    assert heading.split() == " ".join(names).split()
    assert [row.split()[0] for row in rows] == ["decode-0", "decode-1", "prefill-0"]
    assert rows[1].split() == ["decode-1", "decode", "resting", "0", "0", "0%", "0.2s"]
    assert rows[2].split()[-2:] == ["30%", "0.2s"]


def test_wide_has_more_columns_and_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "workers", "-o", "wide")
    heading, first, *_ = done.stdout.splitlines()
    assert "ADDRESS" in heading and "decode-0:7000" in first and "nixl/UCX" in first


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_every_field_and_no_secret(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "workers", "-o", form)
    told = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    assert [each["member"]["worker_id"] for each in told] == ["decode-0", "decode-1", "prefill-0"]
    assert told[1]["load"]["num_running"] == 0
    assert "nobody-sees-this" not in done.stdout


def test_a_pool_is_the_sum_of_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "pools", "-o", "json")
    decode, prefill = json.loads(done.stdout)
    assert (decode["pool"], decode["ready"], decode["members"]) == ("decode", 1, 2)
    assert (decode["total_blocks"], decode["used_blocks"], decode["restarts"]) == (400, 60, 2)
    assert (prefill["waiting_prefill_tokens"], prefill["cached_blocks"]) == (900, 30)


def test_a_worker_is_described_by_every_value_that_the_router_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run(monkeypatch, FakeRouter(), "describe", "worker", "prefill-0")
    rows = dict(line.split(None, 1) for line in done.stdout.splitlines()[1:])
    assert rows["load.exported_blocks"] == "12" and rows["member.kv_transport"] == "nixl/UCX"
    assert "nobody-sees-this" not in done.stdout


def test_a_pool_is_described_with_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "describe", "pool", "decode")
    assert "decode-0" in done.stdout and "prefill-0" not in done.stdout


@pytest.mark.parametrize("kind", ["worker", "pool"])
def test_what_is_not_there_is_exit_code_1_and_what_there_is(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    done = run(monkeypatch, FakeRouter(), "describe", kind, "other")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"no {kind} 'other'" in done.stderr and "decode" in done.stderr


def test_blocks_of_every_state_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "blocks", "prefill-0")
    heading, row = done.stdout.splitlines()
    counted = dict(zip(heading.split(), row.split(), strict=True))
    assert (counted["TOTAL"], counted["ACTIVE"], counted["EXPORTED"]) == ("100", "18", "12")


def test_blocks_that_are_held_leave_out_what_is_free_and_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run(monkeypatch, FakeRouter(), "blocks", "--held", "-o", "json")
    assert json.loads(done.stdout)[2] == {
        "worker_id": "prefill-0",
        "active_blocks": 18,
        "exported_blocks": 12,
        "receiving_blocks": 0,
        "num_leases": 2,
        "num_running": 0,
    }


def test_leases_are_those_of_workers_that_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "leases")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        *("WORKER", "decode-0", "prefill-0")
    ]


def test_a_fleet_without_workers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    router = FakeRouter(members_told=[])
    assert run(monkeypatch, router, "get", "workers").stdout == "no workers have joined\n"
    assert json.loads(run(monkeypatch, router, "get", "workers", "-o", "json").stdout) == []
