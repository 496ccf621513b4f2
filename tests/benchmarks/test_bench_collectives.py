"""What the table of the collectives says of measured times."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.report import Verdict
from benchmarks.sum_sizes import plot_sizes, print_sizes, rows_of, sizes_of


def times_of(work: str, shared_us: float, copies_us: float) -> dict[str, list[float]]:
    return {
        f"shared/{work}": [shared_us, shared_us, 50.0],
        f"copies/{work}": [copies_us],
        f"gloo/{work}": [300.0],
    }


def test_one_row_has_a_goal_of_its_own_and_many_rows_one_beside_their_copies() -> None:
    times = times_of("1 rows, float32", 4.0, 1.0) | times_of("512 rows, float32", 120.0, 100.0)
    rows = {
        row.name: row for row in rows_of(sizes_of(times | times_of("16 rows, bfloat16", 9.0, 3.0)))
    }
    assert rows["1 rows, float32"].verdict is Verdict.MISSED
    assert rows["512 rows, float32"].verdict is Verdict.MET
    assert rows["16 rows, bfloat16"].verdict is Verdict.NO_GOAL
    assert rows["512 rows, float32, p99"].value == 120.0
    assert rows["512 rows, float32, gloo"].value == 300.0


def test_512_rows_at_less_than_four_fifths_of_the_copies_rate_miss_their_goal() -> None:
    row = rows_of(sizes_of(times_of("512 rows, bfloat16", 126.0, 100.0)))[0]
    assert row.verdict is Verdict.MISSED


def test_each_size_is_a_line_beside_gloo_and_the_copies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    times = times_of("512 rows, float32", 120.0, 100.0) | times_of("1 rows, float32", 2.5, 1.0)
    sizes = sizes_of(times)
    print_sizes(sizes)
    _, first, second = capsys.readouterr().out.splitlines()
    row = ["float32", "1", "2.2", "2.50", "50.00", "300", "300", "1.00", "2.50", "3", "met"]
    assert first.split() == row
    assert second.split()[:5] == ["float32", "512", "1152.0", "120", "120"]
    plot_sizes(sizes, tmp_path / "sizes.png")
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")
