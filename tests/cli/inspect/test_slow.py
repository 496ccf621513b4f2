"""`slow`, asked of one router and of several."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli import several_routers
from cli.main import app
from cli.time_commands import kinds_completed
from cluster.errors import DeadlineExceeded, NotAllowed, WorkerLost
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter, run
from tests.cli.inspect.made_up_tail import SLOW, failed, with_a_slow_worker


def test_the_last_line_names_the_planted_worker_and_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = run(monkeypatch, FakeRouter(traces=with_a_slow_worker()), "slow")
    assert shown.exit_code == 0
    last = shown.stdout.strip().splitlines()[-1]
    assert last == (
        f"{SLOW} explains 100% of the requests over p91 (2352 ms); mostly waiting for prefill"
    )


def test_programs_get_every_slice_and_people_as_many_as_they_want(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = FakeRouter(traces=[*with_a_slow_worker(), failed("worker_lost")])
    told = json.loads(run(monkeypatch, router, "slow", "--limit", "1", "-o", "json").stdout)
    assert told["num_requests"] == 121 and told["num_failed"] == 1
    assert told["slices"][0]["value"] == SLOW and len(told["slices"]) > 5
    as_yaml = run(monkeypatch, router, "slow", "-o", "yaml").stdout
    assert yaml.safe_load(as_yaml) == told
    shown = run(monkeypatch, router, "slow", "--limit", "1").stdout
    assert f"{len(told['slices']) - 1} more slices are not shown (--limit)" in shown


def test_only_the_kinds_that_are_asked_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    router = FakeRouter(traces=with_a_slow_worker())
    told = run(monkeypatch, router, "slow", "--by", "tenant, length", "-o", "json").stdout
    assert {each["by"] for each in json.loads(told)["slices"]} == {"tenant", "length"}


def test_a_handful_of_requests_is_said_to_be_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, FakeRouter(), "slow")
    assert shown.exit_code == 0 and "not enough requests: 2 had a first token" in shown.stdout
    nothing = run(monkeypatch, FakeRouter(traces=[]), "slow")
    assert nothing.exit_code == 0 and "not enough requests: 0" in nothing.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("slow", "--by", "colour"), 2),
        (("slow", "--by", ""), 2),
        (("slow", "--since", "soon"), 2),
        (("slow", "--limit", "0"), 2),
        (("slow", "-o", "xml"), 2),
        (("slow", "--since", "10m", "--by", "pool"), 0),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int) -> None:
    assert run(monkeypatch, FakeRouter(), *words).exit_code == code


@pytest.mark.parametrize(
    ("failure", "code"),
    [(WorkerLost("gone"), 3), (DeadlineExceeded("late"), 3), (NotAllowed("no token"), 4)],
)
def test_a_router_that_says_nothing_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, failure: WorkerLost, code: int
) -> None:
    assert run(monkeypatch, FakeRouter(failure=failure), "slow").exit_code == code


class TwoRouters:
    """A Dialer: the second one may be away."""

    def __init__(self, second: FakeRouter) -> None:
        self.routers = {ADDRESS: FakeRouter(traces=with_a_slow_worker()), "other:1": second}

    def operator(self, address: str) -> FakeRouter:
        self.routers[address].operator(ADDRESS)
        return self.routers[address]


@pytest.mark.parametrize("is_away", [False, True])
def test_several_routers_are_put_together_and_one_that_is_away_is_named(
    monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    failure = WorkerLost("nobody there") if is_away else None
    both = TwoRouters(FakeRouter(traces=with_a_slow_worker(), failure=failure))
    words = ("slow", "-o", "json", "--grpc", f"other:1, {ADDRESS}")
    shown = run_at(monkeypatch, both, *words)
    assert shown.exit_code == 0
    told = json.loads(shown.stdout)
    assert told["num_requests"] == (121 if is_away else 242)
    assert told["routers_silent"] == (["other:1"] if is_away else [])
    assert ("other:1" in shown.stderr) is is_away


def run_at(patch: pytest.MonkeyPatch, dialer: TwoRouters, *words: str) -> Result:
    """With addresses of its own."""
    patch.setattr(several_routers, "GrpcDialer", lambda token: dialer)
    return CliRunner().invoke(app, list(words))


def test_a_shell_completes_the_kind_after_the_last_comma() -> None:
    assert kinds_completed("length,h") == ["length,hit"]
    assert kinds_completed("length,l") == []
    assert kinds_completed("t") == ["tenant"]
