"""Averages and gaps, by hand."""

from __future__ import annotations

import pytest

from engine.step.meters.load_meter import LoadMeter, MovingAverage
from engine.step.planning.plan import Chunk, HomeShare


def test_the_first_observation_sets_an_average_and_later_ones_move_it() -> None:
    average = MovingAverage()
    assert (average.per_s, average.mean_ms) == (0.0, 0.0)
    average.add(100, 0.5)
    assert (average.per_s, average.mean_ms) == (200.0, 500.0)
    average.add(100, 0.25)
    assert average.mean_ms == pytest.approx(475.0)


def test_a_gap_counts_only_while_there_was_work() -> None:
    meter = LoadMeter()
    for began_s, has_work in ((0.0, True), (1.5, False), (100.0, True), (101.25, True)):
        meter.begin(began_s)
        meter.end(began_s + 1.0, has_work=has_work, chunks=(), num_decodes=1)
    assert meter.step_gap_p99_ms == pytest.approx(250.0)  # of 250 and 500
    assert meter.decode.mean_ms == 1000.0


def test_mixed_steps_say_nothing_about_decoding() -> None:
    meter = LoadMeter()
    meter.begin(0.0)
    meter.end(2.0, has_work=True, chunks=[Chunk((1, 0), 100)], num_decodes=3)
    assert meter.prefill.per_s == 50.0
    assert meter.decode.mean_ms == 0.0


def test_what_chunks_cost_is_said_without_the_time_that_neighbours_took() -> None:
    """Half of the time the steps waited for a core; budgets count what steps take all the same."""
    cores_s = [0.0]
    meter = LoadMeter(lambda: cores_s[0])
    now_s = 0.0
    for context in (0, 512, 1024, 1536) * 5:
        took_s = 0.1 + context * 1e-4
        meter.begin(now_s)
        now_s += 2 * took_s
        cores_s[0] += took_s
        meter.end(now_s, has_work=True, chunks=[Chunk((1, 0), 512, context)], num_decodes=0)
    token_ms, pair_ms = meter.costs.told_chunk_ms
    said_ms = 512 * token_ms + 512 * (1024 + 256) / 1024 * pair_ms
    assert said_ms == pytest.approx(100 + 1024 * 0.1, rel=0.05)
    assert meter.costs.cost.chunk_ms(512, 1024) == pytest.approx(2 * said_ms, rel=0.05)


def test_a_step_of_several_homes_costs_what_the_slowest_computes() -> None:
    """And its prompt tokens count in full: they were computed side by side."""
    meter, now_s = LoadMeter(), 0.0
    for length in (64, 128) * 5:
        meter.begin(now_s)
        now_s += length * 1e-3
        chunks = [Chunk((1, 0), length), Chunk((2, 0), length // 2)]
        slowest = HomeShare(0, (chunks[0],))
        meter.end(now_s, has_work=True, chunks=chunks, num_decodes=0, slowest=slowest)
    assert meter.costs.cost.chunk_ms(100, 0) == pytest.approx(100.0, rel=0.05)
    assert meter.prefill.per_s == pytest.approx(1500.0)


def test_what_steps_took_is_counted_for_what_they_computed() -> None:
    meter = LoadMeter()
    for began_s, took_s, num_tokens, num_decodes in (
        (0.0, 0.5, 0, 4),
        (1.0, 0.5, 0, 4),
        (2.0, 2.0, 100, 4),
        (5.0, 1.0, 50, 0),
        (7.0, 9.0, 0, 0),
    ):
        meter.begin(began_s)
        chunks = [Chunk((1, 0), num_tokens)] if num_tokens else []
        meter.end(began_s + took_s, has_work=False, chunks=chunks, num_decodes=num_decodes)
    assert meter.prefill_busy_s + meter.decode_busy_s == pytest.approx(4.0)
    assert meter.decode_busy_s == pytest.approx(1.5, rel=0.05)  # half a second of the mixed step
    assert (meter.num_prefilled_tokens, meter.num_decoded_tokens) == (150, 12)
