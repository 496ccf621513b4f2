"""A budget guards pods that serve; one that does not goes where the budget lets it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.mini_cluster.evictions import BUDGETS, refuse_eviction
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal

_LABELS = {"app": "web"}


def a_store(num_ready: int, num_sick: int, **spec: object) -> ObjectStore:
    """Pods that are running, under a budget that two or more have to serve."""
    store = ObjectStore(clock=lambda: datetime(2026, 11, 24, tzinfo=UTC))
    budget = {"selector": {"matchLabels": _LABELS}, "minAvailable": 2, **spec}
    store.create(BUDGETS, {"metadata": {"name": "web", "namespace": "default"}, "spec": budget})
    for index in range(num_ready + num_sick):
        name = f"web-{index}"
        metadata = {"name": name, "namespace": "default", "labels": _LABELS}
        store.create("pods", {"kind": "Pod", "metadata": metadata, "spec": {}})
        set_ready(store, name, index < num_ready)
    return store


def set_ready(store: ObjectStore, name: str, is_ready: bool, phase: str = "Running") -> None:
    condition = {"type": "Ready", "status": str(is_ready)}
    store.set_status("pods", "default", name, {"phase": phase, "conditions": [condition]})


def pod(store: ObjectStore, index: int) -> Object:
    return store.get("pods", "default", f"web-{index}")


def test_a_sick_pod_is_kept_by_a_budget_that_is_broken_already() -> None:
    store = a_store(1, 1)
    with pytest.raises(Refusal, match="disruption budget") as refused:
        refuse_eviction(store, pod(store, 1))
    assert refused.value.code == 429


def test_a_sick_pod_goes_where_the_others_keep_the_budget() -> None:
    store = a_store(2, 1)
    refuse_eviction(store, pod(store, 2))
    with pytest.raises(Refusal):
        refuse_eviction(store, pod(store, 0))


def test_a_sick_pod_goes_where_its_budget_always_allows_it() -> None:
    store = a_store(1, 1, unhealthyPodEvictionPolicy="AlwaysAllow")
    refuse_eviction(store, pod(store, 1))
    with pytest.raises(Refusal):
        refuse_eviction(store, pod(store, 0))


def test_a_pod_that_waits_or_has_ended_costs_no_budget() -> None:
    store = a_store(1, 1)
    for phase in ("Pending", "Succeeded", "Failed"):
        set_ready(store, "web-1", False, phase)
        refuse_eviction(store, pod(store, 1))
