"""What the table of the exchanges says of measured times."""

from __future__ import annotations

from benchmarks.bench_experts import rows_of
from benchmarks.expert_rank import EXCHANGES, STEPS


def test_both_exchanges_stand_below_each_other_for_every_step() -> None:
    times = {f"{exchange}/{step}": [3.0, 1.0, 2.0] for exchange in EXCHANGES for step in STEPS}
    rows = rows_of(times)
    assert [row.name for row in rows[:2]] == [
        "decode, 1 sequence, gather",
        "decode, 1 sequence, all-to-all",
    ]
    assert len(rows) == len(EXCHANGES) * len(STEPS)
    assert (rows[0].value, rows[0].spread) == (2.0, (1.0, 3.0))
