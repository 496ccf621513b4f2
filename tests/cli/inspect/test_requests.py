"""What `get requests`, `describe request`, `get links` and `events` say."""

from __future__ import annotations

import json

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli import question
from cli.inspect.events import follow_events
from cli.inspect_commands import Stages
from cli.main import app
from cluster.errors import WorkerLost, WrongToken
from router.fleet.stage import RequestStage
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter, run
from tests.cli.inspect.made_up_watch import four_events


def test_requests_are_a_row_each_under_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "requests")
    assert done.exit_code == 0, done.output
    title, heading, *rows = done.stdout.splitlines()
    assert title == "3 in flight; shown: 3"
    assert heading.split()[:4] == ["REQUEST", "STAGE", "AGE", "CLASS"]
    assert [row.split()[1] for row in rows] == ["decode", "transfer", "queued"]
    assert "prefill-0 -> decode-0" in rows[0] and "18.8s" in rows[0]


def test_what_does_not_fit_the_limit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "get", "requests", "--limit", "2")
    assert "shown: 2, and there are more (--limit)" in done.stdout


def test_filters_are_the_router_s_to_apply_and_of_requests_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("--stage", "queued", "--tenant", "", "-o", "json")
    told = json.loads(run(monkeypatch, FakeRouter(), "get", "requests", *words).stdout)
    assert [each["request_id"] for each in told["requests"]] == ["9d11-00ff00ff00ff"]
    assert (told["num_in_flight"], told["has_more"]) == (3, False)
    for wrong in (("--stage", "queued"), ("--newest",), ("--older-than", "3")):
        assert run(monkeypatch, FakeRouter(), "get", "workers", *wrong).exit_code == 2


def test_the_stages_of_the_command_are_those_of_a_router() -> None:
    assert list(map(str, Stages)) == list(map(str, RequestStage))


@pytest.mark.parametrize("noun", ["workers", "pools", "leases"])
def test_a_limit_is_refused_of_what_is_listed_whole(
    monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    done = run(monkeypatch, FakeRouter(), "get", noun, "--limit", "2")
    assert done.exit_code == 2 and "--limit: of requests or links" in done.stderr
    assert run(monkeypatch, FakeRouter(), "get", "links", "--limit", "2").exit_code == 0


def test_a_request_is_described_also_one_that_ended_since_it_was_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "7f3a-0123456789ab"
    [told] = yaml.safe_load(
        run(monkeypatch, FakeRouter(), "describe", "request", name, "-o", "yaml").stdout
    )
    assert (told["stage"], told["answer_tokens"], told["deadline_s"]) == ("decode", 512, 18.75)
    name = "9c1d-0123456789ab"
    [told] = json.loads(
        run(monkeypatch, FakeRouter(), "describe", "request", name, "-o", "json").stdout
    )
    assert (told["request_id"], told["stage"], told["ended_ms"]) == (name, "over", 134.0)
    done = run(monkeypatch, FakeRouter(), "describe", "request", "gone")
    assert (done.exit_code, done.stdout) == (1, "") and "too long ago" in done.stderr


class Routers:
    """A Dialer of several."""

    def __init__(self, **routers: FakeRouter) -> None:
        self.routers = routers

    def operator(self, address: str) -> FakeRouter:
        return self.routers[address.partition(":")[0]]


def test_of_several_routers_each_is_asked_for_a_request_until_one_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = FakeRouter(failure=WorkerLost("nobody there"))
    dialer = Routers(one=FakeRouter(traces=[]), away=away, two=FakeRouter())

    def described(name: str, routers: str = "one:1,away:1,two:1") -> Result:
        monkeypatch.setattr(question, "GrpcDialer", lambda token: dialer)
        return CliRunner().invoke(app, ["describe", "request", name, "--grpc", routers])

    done = described("9c1d-0123456789ab")
    assert done.exit_code == 0 and "over" in done.stdout and "away:1" in done.stderr
    assert described("gone").exit_code == 1
    assert described("gone", "away:1").exit_code == 3


def test_links_have_the_rate_that_they_are_priced_with(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(run(monkeypatch, FakeRouter(), "get", "links", "-o", "json").stdout)
    assert [(each["priced_bytes_per_s"], each["is_measured"]) for each in told] == [
        (2.5e9, True),
        (1e9, False),
    ]


def test_events_have_time_and_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, FakeRouter(), "events", "--limit", "2")
    heading, well, refused = done.stdout.splitlines()
    assert heading.split() == ["TIME", "EVENT", "OF", "COUNT", "CAUSE"]
    assert well.split()[:3] == ["2026-11-23T08:01:36Z", "well", "decode-1"]
    assert refused.split()[3:] == ["532", "queue_full"]
    empty = run(monkeypatch, FakeRouter(events_told=[]), "events")
    assert empty.stdout == "nothing has happened\n"


class Enough(Exception):
    """The test has seen enough."""


class Turns:
    """A sleep between looks in which the test does something."""

    def __init__(self, *turns: object) -> None:
        self.turns = list(turns)

    async def __call__(self, seconds: float) -> None:
        if not self.turns:
            raise Enough
        self.turns.pop(0)()  # type: ignore[operator]


def followed(router: FakeRouter, *turns: object, form: str = "table") -> None:
    with pytest.raises(Enough):
        follow_events(ADDRESS, form, 1.0, dialer=router, sleep=Turns(*turns))  # type: ignore[arg-type]


def test_who_follows_sees_each_event_once_and_a_burst_as_it_grows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    *before, burst = four_events()
    router = FakeRouter(events_told=before)
    burst.count = 2
    grown = four_events()[-1]
    grown.number = 5
    followed(
        router,
        lambda: router.events_told.append(burst),
        lambda: None,
        lambda: router.events_told.append(grown),
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["joined", "rested", "well", "refused", "refused"]
    assert lines[-2].endswith("(2 times)") and lines[-1].endswith("(532 times)")


def test_who_follows_outlives_a_router_that_is_away_and_one_that_begins_anew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    router = FakeRouter()

    def goes() -> None:
        router.failure = WorkerLost("nobody there")

    def comes_back() -> None:
        router.failure, router.events_told = None, four_events()[:1]

    followed(router, goes, lambda: None, comes_back, lambda: None, form="json")
    told = capsys.readouterr()
    assert [json.loads(line)["number"] for line in told.out.splitlines()] == [1, 2, 3, 4, 1]
    assert told.err.count("does not answer") == 1


def test_who_may_not_ask_is_told_once_with_exit_code_4() -> None:
    router = FakeRouter(failure=WrongToken("no token"))
    assert follow_events(ADDRESS, "table", 1.0, dialer=router) == 4  # type: ignore[arg-type]
