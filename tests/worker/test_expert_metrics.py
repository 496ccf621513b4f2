"""What the page says of experts that change their ranks."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry

from engine.contract.expert_numbers import ExpertNumbers
from worker.expert_metrics import ExpertMetrics

AGE = "splitserve_worker_expert_rebalance_age_seconds"


def test_imbalance_stands_by_layer_and_age_counts_from_the_last_rebalance() -> None:
    registry, now_s = CollectorRegistry(), [100.0]
    metrics = ExpertMetrics(registry, clock=lambda: now_s[0])
    assert math.isnan(registry.get_sample_value(AGE) or 0.0)
    metrics.take(ExpertNumbers(imbalance={1: 1.25, 2: 2.0}, num_failures=1))
    assert math.isnan(registry.get_sample_value(AGE) or 0.0)
    metrics.take(ExpertNumbers(imbalance={1: 1.25, 2: 1.0}, num_rebalances=1, num_failures=1))
    now_s[0] += 7.0
    assert registry.get_sample_value(AGE) == 7.0
    value = registry.get_sample_value
    assert value("splitserve_worker_expert_imbalance", {"layer": "2"}) == 1.0
    assert value("splitserve_worker_expert_rebalances_total") == 1.0
    assert value("splitserve_worker_expert_rebalance_failures_total") == 1.0


def test_an_engine_that_begins_anew_takes_nothing_back() -> None:
    registry = CollectorRegistry()
    metrics = ExpertMetrics(registry)
    for num_rebalances in (3, 0, 2):
        metrics.take(ExpertNumbers(num_rebalances=num_rebalances))
    assert registry.get_sample_value("splitserve_worker_expert_rebalances_total") == 5.0
