"""Asking a router: exit codes, and watching."""

from __future__ import annotations

import pytest

from cli.inspect.workers import workers_view
from cli.question import Showing, ask_router
from cluster.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    SplitserveError,
    WorkerLost,
    WrongToken,
)
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter, run
from tests.cli.run_cli import cli
from tests.cli.test_status import running_fleet


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (WorkerLost("connection refused"), 3),
        (DeadlineExceeded("too late"), 3),
        (WrongToken("another fleet's token"), 4),
        (InvalidRequest("no"), 1),
        (InternalError("no"), 1),
    ],
)
def test_what_goes_wrong_is_one_exit_code_and_a_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, failure: SplitserveError, code: int
) -> None:
    done = run(monkeypatch, FakeRouter(failure=failure), "get", "workers")
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ") and failure.message in done.stderr


def test_a_form_that_there_is_not_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    router = FakeRouter()
    done = run(monkeypatch, router, "get", "workers", "-o", "xml")
    assert (done.exit_code, router.num_calls) == (2, 0)
    assert "allowed: table, wide, json, yaml" in done.stderr


def test_a_watch_asks_again_and_outlives_a_router_that_is_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    router = FakeRouter()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        router.failure = WorkerLost("gone") if len(slept) == 1 else None
        if len(slept) == 3:
            raise KeyboardInterrupt

    showing = Showing("table", every_s=1.5)
    with pytest.raises(KeyboardInterrupt):
        ask_router(ADDRESS, workers_view, showing, dialer=router, sleep=sleep)  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert (slept, router.num_calls) == ([1.5] * 3, 3)
    assert told.out.count("WORKER") == 2 and "gone" in told.err


def test_a_watch_ends_where_it_is_refused() -> None:
    router = FakeRouter(failure=WrongToken("no"))

    async def never(seconds: float) -> None:
        raise AssertionError

    showing = Showing("table", every_s=1.0)
    code = ask_router(ADDRESS, workers_view, showing, dialer=router, sleep=never)  # type: ignore[arg-type]
    assert code == 4


def test_a_router_is_asked_over_grpc_and_one_that_is_away_is_exit_code_3() -> None:
    with running_fleet() as fleet:
        fleet.add("decode-0", "decode")
        done = cli("get", "workers", "--grpc", fleet.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split()[:3] == ["decode-0", "decode", "ready"]
    gone = cli("get", "workers", "--grpc", "127.0.0.1:1")
    assert (gone.returncode, gone.stdout) == (3, "")
    assert "127.0.0.1:1" in gone.stderr and "--grpc" in gone.stderr
