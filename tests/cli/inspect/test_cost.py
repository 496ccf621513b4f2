"""`cost`: shares without prices, money with them, and what is missing in words."""

from __future__ import annotations

import json

import pytest
import typer

from cli.inspect.cost import RouterWork, cost_view
from cli.inspect.prices import prices_of
from cli.several_routers import RoutersHeard
from cluster.errors import NotAllowed, WorkerLost
from protos import fleet_watch_pb2
from tests.cli.inspect.fake_router import FakeRouter, run
from tests.cli.inspect.made_up_work import worked_for_two_tenants


def test_tenants_and_idle_time_are_the_workers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(run(monkeypatch, FakeRouter(), "cost", "-o", "json").stdout)
    of_tenants = sum(each["busy_s"] for each in told["tenants"])
    assert of_tenants + told["idle_s"] == pytest.approx(7200.0)
    assert sum(pool["worker_s"] for pool in told["pools"]) == pytest.approx(7200.0)
    assert [pool["cost"] for pool in told["pools"]] == [None, None]
    assert told["tenants"][0]["tenant"] == "acme" and told["tenants"][0]["cost"] is None


def test_prices_turn_seconds_into_money(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("cost", "--price", "prefill=3.6,decode=7.2", "-o", "json")
    told = json.loads(run(monkeypatch, FakeRouter(), *words).stdout)
    decode, prefill = told["pools"]
    assert (prefill["cost"], decode["cost"]) == (pytest.approx(3.6), pytest.approx(7.2))
    assert prefill["cost_per_million_tokens"] == pytest.approx(1.2)
    costs = {each["tenant"]: each["cost"] for each in told["tenants"]}
    assert costs["acme"] == pytest.approx(600 * 0.001 + 1300 * 0.002)
    idle = prefill["cost"] * prefill["idle_share"] + decode["cost"] * decode["idle_share"]
    assert sum(costs.values()) + idle == pytest.approx(10.8)


def test_people_read_the_idle_share_and_what_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = run(monkeypatch, FakeRouter(), "cost").stdout
    assert "idle: 42% of decode, 75% of prefill (no prices:" in shown
    assert "(unaccounted): 200.0 s for requests that no router here knows" in shown


def test_the_variable_is_a_price_and_the_flag_wins() -> None:
    environ = {"SPLITSERVE_PRICE": "prefill=1"}
    assert prices_of(None, environ) == {"prefill": 1.0}
    assert prices_of("decode=2", environ) == {"decode": 2.0}
    assert prices_of(None, {}) == {}


@pytest.mark.parametrize(
    "said", ["GPU=2", "a b=2", "-a=2", "prefill", "prefill=", "decode=-1", "decode=nan", "=1"]
)
def test_what_is_no_price_is_refused(said: str) -> None:
    with pytest.raises(typer.BadParameter, match="prefill|price"):
        prices_of(said, {})


def test_a_pool_without_a_price_is_left_out_of_the_money_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = run(monkeypatch, FakeRouter(), "cost", "--price", "prefill=3.6").stdout
    assert shown.strip().endswith("2.70 of 3.60 were paid for idle time, without decode")


def test_a_named_pool_has_its_price_and_one_that_is_not_there_is_said() -> None:
    work = fleet_watch_pb2.WorkerTime(worker_id="w", role="decode", pool="h100", known_s=3600.0)
    told = fleet_watch_pb2.WorkResponse(workers=[work])
    heard = RoutersHeard({"r1:1": RouterWork(told, 1)}, {})
    view = cost_view(heard, prices_of("h100=2.5,h200=4"), 20)
    text = view.text("table")
    assert "2.50 of 2.50 were paid for idle time" in text
    assert "no pool is called h200, of which a price is said: h100" in text


def test_what_a_router_that_is_away_knew_is_said_to_be_missing() -> None:
    heard = RoutersHeard(
        {"r1:1": RouterWork(worked_for_two_tenants(), 3)}, {"r2:1": WorkerLost("gone")}
    )
    text = cost_view(heard, {}, 20).text("table")
    assert "missing: requests of the router r2:1" in text
    assert "missing: requests of 1 routers that were not asked" in text


def test_a_worker_that_tells_no_step_times_is_named() -> None:
    silent = fleet_watch_pb2.WorkerTime(
        worker_id="vllm-0", role="decode", known_s=10.0,
        tenants=[fleet_watch_pb2.TenantWork(tenant="a", decoded_tokens=5)],
    )  # fmt: skip
    told = fleet_watch_pb2.WorkResponse(workers=[silent], num_forgotten=2)
    text = cost_view(RoutersHeard({"r1:1": RouterWork(told, 1)}, {}), {}, 20).text("table")
    assert "vllm-0: no step times are told" in text and "2 workers that left long ago" in text


def test_a_fleet_without_workers_is_no_error() -> None:
    heard = RoutersHeard({"r1:1": RouterWork(fleet_watch_pb2.WorkResponse(), 1)}, {})
    assert cost_view(heard, {}, 20).text("table") == "no worker has said anything yet"


@pytest.mark.parametrize(
    ("words", "failure", "code"),
    [
        (("--price", "GPU=1"), None, 2),
        (("--limit", "0"), None, 2),
        ((), WorkerLost("gone"), 3),
        ((), NotAllowed("no token"), 4),
        (("--limit", "1"), None, 0),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], failure: WorkerLost | None, code: int
) -> None:
    assert run(monkeypatch, FakeRouter(failure=failure), "cost", *words).exit_code == code
