"""What the table of a shared mixture says of measured times, and of its KV."""

from __future__ import annotations

from benchmarks.bench_experts import kv_rows, rows_of
from benchmarks.expert_rank import STEPS, WAYS


def test_all_ways_stand_below_each_other_for_every_step() -> None:
    times = {f"{way}/{step}": [3.0, 1.0, 2.0] for way in WAYS for step in STEPS}
    rows = rows_of(times)
    assert [row.name for row in rows[:3]] == [
        "decode, 1 sequence, gather",
        "decode, 1 sequence, all-to-all",
        "decode, 1 sequence, own sequences",
    ]
    assert len(rows) == len(WAYS) * len(STEPS)
    assert (rows[0].value, rows[0].spread) == (2.0, (1.0, 3.0))


def test_ranks_with_sequences_of_their_own_hold_a_latent_once() -> None:
    by_heads, own_heads, latents, own_latents = kv_rows()
    assert own_heads.value == by_heads.value == by_heads.floor
    assert latents.value == 2 * own_latents.value
    assert own_latents.value == own_latents.floor
