"""How growth is told from a process's sizes."""

from __future__ import annotations

import pytest

from benchmarks.bench_soak import growth
from benchmarks.report import Verdict


def test_what_caches_take_at_first_is_no_growth() -> None:
    row = growth("engine", [100.0, 150.0, 200.0, 200.0, 201.0, 199.0, 200.0, 200.0])
    assert row.value == pytest.approx(0) and row.verdict is Verdict.MET


def test_a_leak_is_told_in_percent_of_the_second_quarter() -> None:
    row = growth("router", [100.0 + second for second in range(400)])
    assert row.value == pytest.approx(100 * 200 / 249.5) and row.verdict is Verdict.MISSED


def test_a_run_of_one_look_says_nothing_of_growth() -> None:
    assert growth("short", [5.0]).value == 0
