"""`trace`: one request, or the slowest, for people and for programs."""

from __future__ import annotations

import json

import pytest
import yaml

from cli.inspect.traces import BAR_CELLS, bar_of
from cli.inspect.waterfall import DrawnSpan
from cluster.errors import WorkerLost
from tests.cli.inspect.fake_router import FakeRouter, run

ASKED = "7f3a-0123456789ab"


def test_programs_get_the_stamps_and_the_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(run(monkeypatch, FakeRouter(), "trace", ASKED, "-o", "json").stdout)
    (one,) = told
    assert one["request_id"] == ASKED
    assert one["legs"][0]["stages"]["source_queue_ms"] == 124.0
    assert [span["name"] for span in one["spans"]][-3:] == [
        "prefill.compute",
        "kv.transfer",
        "decode",
    ]
    as_yaml = run(monkeypatch, FakeRouter(), "trace", ASKED, "-o", "yaml").stdout
    assert yaml.safe_load(as_yaml) == told


def test_the_slowest_are_as_many_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, FakeRouter(), "trace", "--slowest", "1")
    assert shown.exit_code == 0
    assert ASKED in shown.stdout and "9c1d" not in shown.stdout


def test_a_fleet_that_has_answered_nobody_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, FakeRouter(traces=[]), "trace", "--slowest", "3")
    assert (shown.exit_code, shown.stdout.strip()) == (0, "no request is over yet")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("trace", "unknown"), 1),
        (("trace",), 2),
        (("trace", ASKED, "--slowest", "2"), 2),
        (("trace", "--slowest", "0"), 2),
        (("trace", "--slowest", "1", "--since", "soon"), 2),
        (("trace", "--slowest", "1", "--since", "0m"), 2),
        (("trace", "--slowest", "1", "--since", "10m"), 0),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int) -> None:
    assert run(monkeypatch, FakeRouter(), *words).exit_code == code


def test_a_router_that_is_away_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    router = FakeRouter(failure=WorkerLost("nobody there"))
    assert run(monkeypatch, router, "trace", ASKED).exit_code == 3


@pytest.mark.parametrize(
    ("start_ms", "took_ms", "filled"), [(0, 100, 40), (50, 50, 20), (0, 0, 1), (99.99, 0.01, 1)]
)
def test_a_bar_is_as_long_as_its_share_and_never_nothing(
    start_ms: float, took_ms: float, filled: int
) -> None:
    span = DrawnSpan(name="x", where="y", start_ms=start_ms, took_ms=took_ms)
    bar = bar_of(span, 100.0)
    assert len(bar) == BAR_CELLS
    assert len(bar.strip()) == filled


def test_a_bar_that_leaves_the_axis_says_so() -> None:
    span = DrawnSpan(name="x", where="y", start_ms=10.0, took_ms=500.0)
    assert bar_of(span, 100.0).endswith("▶")
    late = DrawnSpan(name="x", where="y", start_ms=400.0, took_ms=5.0)
    assert bar_of(late, 100.0) == " " * (BAR_CELLS - 1) + "▶"
