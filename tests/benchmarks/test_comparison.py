"""Ratios between systems, and the picture of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.comparison import OURS, Comparison, print_comparison, write_comparison
from benchmarks.plot import plot_comparisons, plot_rows
from benchmarks.report import Row

TIMES = Comparison(
    "a step",
    "ms",
    2.0,
    1.25,
    taken={OURS: [4.0, 5.0, 4.0], "slow": [8.0] * 3, "fast": [5.0, 6.0, 5.0]},
)
RATE = Comparison(
    "tokens", "tokens/s", None, 1.5, higher_is_better=True, taken={OURS: [300.0], "vllm": [150.0]}
)


def test_the_best_peer_is_the_one_to_beat() -> None:
    assert TIMES.peers() == ["fast", "slow"]
    assert TIMES.ratio == pytest.approx(1.25)  # the median of 5/4, 6/5 and 5/4
    assert not TIMES.is_missed


def test_a_ratio_below_the_goal_is_missed() -> None:
    row = Comparison("a step", "ms", None, 1.25, taken={OURS: [4.0], "fast": [4.9]})
    assert row.is_missed


def test_more_is_better_where_a_row_says_so() -> None:
    assert RATE.ratio == 2.0
    assert not RATE.is_missed


def test_other_settings_of_our_own_are_not_peers() -> None:
    row = Comparison("a step", "ms", taken={OURS: [4.0], f"{OURS} full/auto": [1.0]})
    assert row.peers() == []
    assert row.ratio is None


def test_losers_floor_and_goal_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(TIMES)
    printed = capsys.readouterr().out
    assert printed.index(OURS) < printed.index("fast") < printed.index("slow")
    assert "floor of this machine" in printed
    assert "goal 1.25x the best peer: 1.25x, met" in printed


def test_every_round_is_kept_with_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    write_comparison(path, "peers", [TIMES, RATE], {"threads": 2})
    kept = json.loads(path.read_text())
    assert kept["threads"] == 2
    assert kept["cores"] and kept["date"] and kept["versions"]
    assert kept["rows"][0]["rounds"]["slow"] == [8.0, 8.0, 8.0]
    assert kept["rows"][1]["ratio_to_ours"] == {"vllm": 2.0}


def test_tables_become_pictures(tmp_path: Path) -> None:
    plot_comparisons([TIMES, RATE, TIMES], tmp_path / "peers.png")
    plot_rows("engine", [Row("a", 3.0, "ms", 2.0), Row("b", 3.0, "ms")], tmp_path / "engine.png")
    for name in ("peers.png", "engine.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
