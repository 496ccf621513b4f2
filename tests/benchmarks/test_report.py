"""What a figure says about its goal and its machine."""

from __future__ import annotations

import pytest

import kernels.cpu.native_sources as native_sources
from benchmarks.report import Row, Verdict, exit_code, machine, median_row


@pytest.mark.parametrize(
    ("value", "floor", "goal", "verdict"),
    [
        (10.0, 5.0, None, Verdict.NO_GOAL),
        (250.0, 270.0, 250.0, Verdict.MET),
        (290.0, 270.0, 250.0, Verdict.FLOOR_ABOVE_GOAL),
        (340.0, 270.0, 250.0, Verdict.MISSED),
        (260.0, 240.0, 250.0, Verdict.MISSED),
        (260.0, None, 250.0, Verdict.MISSED),
    ],
)
def test_a_goal_below_the_floor_is_not_missed_by_a_figure_near_the_floor(
    value: float, floor: float | None, goal: float | None, verdict: Verdict
) -> None:
    row = Row("prefill", value, "ms", floor, goal)
    assert row.verdict is verdict
    assert exit_code([row]) == int(verdict is Verdict.MISSED)


def test_a_median_keeps_its_spread() -> None:
    row = median_row("step", [3.0, 1.0, 9.0], "ms")
    assert (row.value, row.spread) == (3.0, (1.0, 9.0))


def test_figures_say_which_native_kernels_their_machine_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_sources, "_cpu_flags", lambda: frozenset({"avx2", "fma", "f16c"}))
    assert machine()["native_level"] == "avx2"
    monkeypatch.setattr(native_sources, "_cpu_flags", frozenset)
    assert machine()["native_level"] == "none"
