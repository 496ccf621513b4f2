"""What the table of the collectives says of measured times."""

from __future__ import annotations

from benchmarks.bench_collectives import rows_of
from benchmarks.report import Verdict


def times_of(work: str, shared_us: float, copies_us: float) -> dict[str, list[float]]:
    return {
        f"shared/{work}": [shared_us, shared_us, 50.0],
        f"copies/{work}": [copies_us],
        f"gloo/{work}": [300.0],
    }


def test_one_row_has_a_goal_of_its_own_and_many_rows_one_beside_their_copies() -> None:
    times = times_of("1 rows, float32", 4.0, 1.0) | times_of("512 rows, float32", 120.0, 100.0)
    rows = {row.name: row for row in rows_of(times | times_of("16 rows, bfloat16", 9.0, 3.0))}
    assert rows["1 rows, float32"].verdict is Verdict.MISSED
    assert rows["512 rows, float32"].verdict is Verdict.MET
    assert rows["16 rows, bfloat16"].verdict is Verdict.NO_GOAL
    assert rows["512 rows, float32, p99"].value == 120.0
    assert rows["512 rows, float32, gloo"].value == 300.0


def test_512_rows_at_less_than_four_fifths_of_the_copies_rate_miss_their_goal() -> None:
    row = rows_of(times_of("512 rows, bfloat16", 126.0, 100.0))[0]
    assert row.verdict is Verdict.MISSED
