"""Requests by adapter: few labels, whatever names come and go."""

from prometheus_client import CollectorRegistry

from cluster.adapter import MAX_ADAPTERS
from router.telemetry.adapter_counts import OTHERS, AdapterCounts


def test_an_error_s_code_is_one_outcome_with_all_others() -> None:
    registry = CollectorRegistry()
    metrics = AdapterCounts(registry)
    for outcome in ("ok", "ok", "cancelled", "worker_lost", "deadline_exceeded"):
        metrics.ended("one", outcome)
    found = {
        outcome: registry.get_sample_value(
            "splitserve_adapter_requests_total", {"adapter": "one", "outcome": outcome}
        )
        for outcome in ("ok", "cancelled", "failed")
    }
    assert found == {"ok": 2, "cancelled": 1, "failed": 2}


def test_names_beyond_the_limit_count_together() -> None:
    registry = CollectorRegistry()
    metrics = AdapterCounts(registry)
    for number in range(2 * MAX_ADAPTERS):
        metrics.ended(f"adapter-{number}", "ok")
    metrics.ended("adapter-0", "ok")
    [family] = registry.collect()
    series = {s.labels["adapter"]: s.value for s in family.samples if s.name.endswith("_total")}
    assert len(series) == MAX_ADAPTERS + 1
    assert series["adapter-0"] == 2
    assert series[OTHERS] == MAX_ADAPTERS
