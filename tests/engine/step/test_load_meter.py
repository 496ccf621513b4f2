"""Averages and gaps, by hand."""

from __future__ import annotations

import pytest

from engine.step.load_meter import LoadMeter, MovingAverage
from engine.step.plan import Chunk


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
