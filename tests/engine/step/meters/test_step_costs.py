"""What steps take: fitted from steps whose true cost is known."""

from __future__ import annotations

import random

import pytest

from cluster.generation import pairs_of
from engine.step.meters.load_meter import StepCostMeter
from engine.step.planning.step_cost import StepCost

TRUE = StepCost(base_ms=4.0, row_ms=0.25, token_ms=0.3, pair_ms=0.02)


def step_ms(num_rows: int, num_tokens: int, context: int) -> float:
    chunk_ms = TRUE.chunk_ms(num_tokens, context) if num_tokens else 0.0
    return (TRUE.decodes_ms(num_rows) if num_rows else 0.0) + chunk_ms


def measured(chance: random.Random, num_steps: int, *, num_rows: int | None = None) -> StepCost:
    meter = StepCostMeter()
    for _ in range(num_steps):
        rows = chance.randrange(1, 33) if num_rows is None else num_rows
        tokens = chance.choice([0, 0, 16, 64, 256, 512])
        context = chance.randrange(0, 4096)
        took_ms = step_ms(rows, tokens, context) * chance.uniform(0.95, 1.05)
        pairs = pairs_of(tokens, context)
        meter.add(took_ms, num_rows=rows, num_tokens=tokens, num_pairs=pairs)
    return meter.cost


def test_the_fit_finds_the_costs_of_rows_tokens_and_context() -> None:
    found = measured(random.Random(1), 400)
    for rows in (1, 8, 32):
        assert found.decodes_ms(rows) == pytest.approx(TRUE.decodes_ms(rows), rel=0.1)
    for tokens, context in ((64, 0), (512, 0), (512, 3500)):
        expected_ms = TRUE.chunk_ms(tokens, context)
        assert found.chunk_ms(tokens, context) == pytest.approx(expected_ms, rel=0.15)


def test_short_chunks_that_cost_more_per_token_are_soon_believed() -> None:
    """Each chunk reads its whole context once: 400 tokens at once, then 32 at a time."""
    meter = StepCostMeter()
    for _ in range(20):
        meter.add(400 * 0.25, num_rows=0, num_tokens=400, num_pairs=pairs_of(400, 0))
    for _ in range(60):
        meter.add(32 * 0.5, num_rows=0, num_tokens=32, num_pairs=pairs_of(32, 200))
    assert meter.cost.chunk_ms(32, 200) == pytest.approx(32 * 0.5, rel=0.25)


def test_short_prompts_alone_tell_nobody_what_a_long_one_would_take() -> None:
    meter = StepCostMeter()
    for _ in range(30):
        meter.add(TRUE.chunk_ms(100, 0), num_rows=0, num_tokens=100, num_pairs=pairs_of(100, 0))
    assert meter.told_chunk_ms == (0.0, 0.0)
    for context in (0, 512, 1024, 1536) * 3:
        pairs = pairs_of(512, context)
        took_ms = TRUE.chunk_ms(512, context)
        meter.add(took_ms, num_rows=0, num_tokens=512, num_pairs=pairs)
    token_ms, pair_ms = meter.told_chunk_ms
    assert token_ms == pytest.approx(TRUE.token_ms, rel=0.1)
    assert pair_ms == pytest.approx(TRUE.pair_ms, rel=0.5)


def test_a_batch_that_never_changes_is_priced_as_measured() -> None:
    found = measured(random.Random(2), 50, num_rows=4)
    assert found.decodes_ms(4) == pytest.approx(TRUE.decodes_ms(4), rel=0.06)


def test_nothing_is_known_before_the_first_step() -> None:
    cost = StepCostMeter().cost
    assert cost.decodes_ms(16) == 0.0
    assert not cost.knows_chunks


def test_a_step_that_lost_its_core_moves_the_fit_little() -> None:
    meter = StepCostMeter()
    for took_ms in (*[5.0] * 30, 800.0):
        meter.add(took_ms, num_rows=2, num_tokens=0, num_pairs=0.0)
    assert meter.cost.decodes_ms(2) < 6.0


def test_the_tail_is_what_slow_steps_take_over_what_they_should() -> None:
    meter, chance = StepCostMeter(), random.Random(4)
    for _ in range(3000):
        took_ms = 10.0 if chance.random() < 0.9 else 20.0
        meter.add(took_ms, num_rows=4, num_tokens=0, num_pairs=0.0)
    assert 1.5 < meter.cost.tail < 2.2
    for _ in range(3000):
        meter.add(10.0, num_rows=4, num_tokens=0, num_pairs=0.0)
    assert meter.cost.tail < 1.1


@pytest.mark.parametrize("context", [0, 1000, 8000])
@pytest.mark.parametrize("limit_ms", [0.5, 10.0, 300.0])
def test_the_longest_chunk_within_a_time_takes_that_time(limit_ms: float, context: int) -> None:
    tokens = TRUE.tokens_within(limit_ms, context)
    assert TRUE.chunk_ms(tokens, context) <= limit_ms
    assert TRUE.chunk_ms(tokens + 1, context) > limit_ms
