"""Five minutes of times, from histograms that only grow."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from router.page.history import NUM_STEPS, History
from router.telemetry.quick_histogram import QuickHistogram


def histogram(name: str) -> QuickHistogram:
    return QuickHistogram(name, "Test.", (0.01, 0.1, 1.0), CollectorRegistry())


def test_a_step_tells_of_what_was_observed_in_it_alone() -> None:
    ttft, itl = histogram("ttft"), histogram("itl")
    ttft.observe(0.5)  # before the first look
    history = History(ttft, itl)
    history.look()
    for _ in range(10):
        ttft.observe(0.05)
    history.look()
    series = history.series()
    assert len(series.ttft_p50_ms) == NUM_STEPS
    assert series.ttft_p50_ms[-2] is None and series.itl_p50_ms[-1] is None
    assert series.ttft_p50_ms[-1] == pytest.approx(50.0, rel=0.08)  # buckets are 15 % apart
    assert series.ttft_p95_ms[-1] == pytest.approx(50.0, rel=0.08)


def test_what_is_older_than_the_last_step_falls_out() -> None:
    ttft = histogram("ttft")
    history = History(ttft, histogram("itl"))
    ttft.observe(0.05)
    for _ in range(NUM_STEPS):
        history.look()
    assert history.series().ttft_p50_ms[0] is not None
    history.look()
    assert set(history.series().ttft_p50_ms) == {None}
