"""docs/operations.md has every metric that a router and a worker show, by the name that it has."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from cluster.identity import Role
from cluster.process.loop_lag import LoopLag
from cluster.tracing.export import SpanCounts
from cluster.world import World
from planner.planner_metrics import PlannerMetrics
from router.store.names import StoreNames
from router.store.opened import open_store
from router.telemetry.circle_metrics import CircleMetrics
from router.telemetry.class_metrics import LimitMetrics
from router.telemetry.grammar_metrics import GrammarMetrics
from router.telemetry.metrics import RouterMetrics, TextMetrics
from router.telemetry.pairing_metrics import PairingMetrics
from router.telemetry.pressure_metrics import PressureMetrics
from router.telemetry.resume_metrics import ResumeMetrics
from router.telemetry.store_metrics import watch_store
from worker.adapters.adapter_metrics import AdapterMetrics
from worker.adapters.numbers import AdapterNumbers
from worker.metrics import WorkerMetrics

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
WORD = re.compile(r"`(splitserve_|\.\.\._)(\w+?)(?:\{[\w,]+\})?`")
ENDINGS = {"counter": "_total", "info": "_info"}


def shown(registry: CollectorRegistry, prefix: str) -> set[str]:
    """The names as a scrape has them, without what they begin with."""
    found = (family.name + ENDINGS.get(family.type, "") for family in registry.collect())
    return {name.removeprefix("splitserve_").removeprefix(prefix) for name in found}


def listed(heading: str, prefix: str) -> set[str]:
    """The names of a table; `..._` stands for what its names begin with."""
    table = PAGE.partition(heading)[2].partition("\n\n")[0]
    return {match[2].removeprefix(prefix) for match in WORD.finditer(table)}


def test_the_page_lists_the_metrics_of_a_router() -> None:
    metrics = RouterMetrics()
    metrics.watch_queue(int, int)
    metrics.watch_index(int)
    metrics.watch_retries(float)
    metrics.watch_members("decode", int)
    metrics.watch_discovery(bool)
    metrics.registry.register(PairingMetrics(list, bool))
    metrics.watch_states(list)
    metrics.classes.watch(lambda priority: 0, int)
    LimitMetrics(metrics.registry)
    metrics.registry.register(PressureMetrics(list))
    TextMetrics(metrics.registry).watch("text-worker", num_waiting=int, absent_s=float)
    LoopLag().publish(metrics.registry)
    circle = CircleMetrics(metrics.registry)
    circle.watch_routers(int, int)
    circle.watch_digests(int, int)
    store = open_store("redis://here", StoreNames("all", "tiny"), World(), timeout_s=1.0)
    watch_store(store, metrics.registry)
    GrammarMetrics(metrics.registry)
    ResumeMetrics(metrics.registry).watch(int, int)
    SpanCounts(metrics.registry)
    assert listed("| metric of the router |", "") == shown(metrics.registry, "")


def test_the_page_lists_the_metrics_of_a_worker() -> None:
    metrics = WorkerMetrics(Role.DECODE, "decode-0")
    metrics.registry.register(AdapterMetrics(AdapterNumbers))
    LoopLag().publish(metrics.registry)
    SpanCounts(metrics.registry)
    assert listed("| metric of a worker", "worker_") == shown(metrics.registry, "worker_")


def test_the_page_lists_the_metrics_of_a_planner() -> None:
    metrics = PlannerMetrics()
    LoopLag().publish(metrics.registry)
    assert listed("| metric of the planner |", "planner_") == shown(metrics.registry, "planner_")
