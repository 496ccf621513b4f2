"""Boards and alerts ask about series that there are, and alerts fire for what they are about."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from cli.board import board_json
from cli.grafana_boards import BOARDS
from cluster.errors import InternalError, QueueFull, from_code, status_of
from cluster.generation import EngineLoad, Timing, Usage
from cluster.identity import Role
from cluster.process.loop_lag import LoopLag
from cluster.world import World
from planner.decision import Stand
from planner.planner_metrics import PlannerMetrics
from router.store.names import StoreNames
from router.store.opened import open_store
from router.telemetry.circle_metrics import CircleMetrics
from router.telemetry.class_metrics import LimitMetrics
from router.telemetry.member_metrics import MemberStanding
from router.telemetry.metrics import RouterMetrics
from router.telemetry.pairing_metrics import PairingCount, PairingMetrics
from router.telemetry.pressure_metrics import Pressure, PressureMetrics
from router.telemetry.store_metrics import watch_store
from router.tenants.limits import LimitKind
from router.tenants.priority import Priority
from tests.deploy.chart import CHART, rendered
from tests.deploy.prometheus import Prometheus, Scraped, program, prometheus_of
from tests.planner.sights import sight
from worker.metrics import WorkerMetrics

MONITORING = CHART / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
RUNBOOKS = (Path(__file__).parents[2] / "docs" / "runbooks.md").read_text()
POD = {"namespace": "a", "app_kubernetes_io_instance": "llm"}
RULES = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]


def routers_page() -> CollectorRegistry:
    """Of a router to which all has happened that a board or an alert asks about."""
    metrics = RouterMetrics()
    metrics.watch_queue(lambda: 3, lambda: 5)
    metrics.classes.watch(lambda priority: 1, lambda: 1)
    metrics.watch_discovery(lambda: True)
    pairing = PairingCount("12ab", "prefill", 2, 2)
    metrics.registry.register(PairingMetrics(lambda: [pairing], lambda: True))
    metrics.watch_states(lambda: [MemberStanding("decode-0", "decode", "ready", 64)])
    metrics.finished(Usage(10, 5, 5), Timing())
    metrics.classes.finished(Priority.STANDARD, Usage(10, 5, 5), Timing())
    metrics.classes.gave_way(Priority.BATCH)
    metrics.routes.labels("pair").inc()
    metrics.restarts.labels("decode", "rank_lost").inc()
    metrics.continued.labels("drained").inc()
    metrics.inter_token.observe(0.01)
    metrics.expected_tokens.inc(5)
    metrics.classes.refused(Priority.STANDARD, QueueFull("full"))
    LimitMetrics(metrics.registry).refused(Priority.STANDARD, LimitKind.REQUESTS)
    circle = CircleMetrics(metrics.registry)
    circle.watch_routers(lambda: 2, lambda: 1)
    pressure = [Pressure("prefill", "wait", 0.5), Pressure("decode", "inter_token", 0.2)]
    metrics.registry.register(PressureMetrics(lambda: pressure))
    store = open_store("redis://here", StoreNames("all", "tiny"), World(), timeout_s=0.02)
    watch_store(store, metrics.registry)
    LoopLag().publish(metrics.registry)
    return metrics.registry


def workers_page() -> CollectorRegistry:
    """Of a decode worker that has read blocks, and given a source up."""
    metrics = WorkerMetrics(Role.DECODE, "decode-0")
    metrics.engine_load(EngineLoad(num_running=1, decode_step_ms=5.0, free_blocks=7))
    metrics.transferred(1000, 1.0)
    metrics.transfer_failed("no_progress")
    metrics.handoff_ended("first")
    LoopLag().publish(metrics.registry)
    return metrics.registry


def planners_page() -> CollectorRegistry:
    """Of a planner after its first look."""
    metrics = PlannerMetrics()
    metrics.seen(sight(0.5), Stand.STEADY)
    metrics.is_seeing.set(1)
    return metrics.registry


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    pages = [
        Scraped(routers_page(), {**POD, "pod": "llm-router-1"}),
        Scraped(planners_page(), {**POD, "pod": "llm-planner-1"}),
        Scraped(workers_page(), {**POD, "pod": "llm-decode-1", "splitserve_pool": "decode"}),
    ]
    with prometheus_of(pages, tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def test_the_boards_in_the_chart_are_those_that_the_code_makes() -> None:
    for board in BOARDS:
        path = MONITORING / f"{board.uid.removeprefix('splitserve-')}.json"
        assert json.loads(path.read_text()) == board_json(board), "python -m cli.grafana_boards"
    assert len(list(MONITORING.glob("*.json"))) == len(BOARDS)


def test_every_query_of_every_board_finds_what_a_router_and_a_worker_show(
    prometheus: Prometheus,
) -> None:
    for board in BOARDS:
        for query in board.queries():
            given = query.replace("$namespace", "a").replace("$release", "llm")
            assert prometheus.asked(given.replace("$__rate_interval", "1m")), query


def test_legends_name_labels_that_the_answers_have(prometheus: Prometheus) -> None:
    for panel in (panel for board in BOARDS for row in board.rows for panel in row):
        for legend, query in panel.queries.items():
            given = re.sub(r"@", 'namespace="a"', query).replace("$__rate_interval", "1m")
            named = set(re.findall(r"{{(\w+)}}", legend))
            assert all(named <= labels.keys() for labels in prometheus.asked(given)), legend


def test_a_board_of_another_release_is_empty(prometheus: Prometheus) -> None:
    for query in BOARDS[0].queries():
        given = query.replace("$namespace", "a").replace("$release", "other")
        assert not prometheus.asked(given.replace("$__rate_interval", "1m")), query


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_about_series_that_there_are(
    rule: dict[str, str], prometheus: Prometheus
) -> None:
    for name in set(re.findall(r"splitserve_\w+", rule["expr"])):
        by_role = '{splitserve_pool=~".*"}' if "splitserve_worker" in name else ""
        if name != "splitserve_pool":
            assert prometheus.asked(name + by_role), name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_its_page_in_the_runbooks(rule: dict[str, str]) -> None:
    assert f"## {rule['alert']}\n" in RUNBOOKS


def test_alerts_fire_for_what_they_are_about_and_not_before(tmp_path: Path) -> None:
    for path in (ALERTS, Path(__file__).with_name("alerts_test.yaml")):
        (tmp_path / path.name).write_text(path.read_text())
    tried = [program("promtool"), "test", "rules", "alerts_test.yaml"]
    done = subprocess.run(tried, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = {case["alertname"] for case in _cases() if case.get("exp_alerts")}
    assert told == {rule["alert"] for rule in RULES}


def test_errors_that_alert_are_ours_and_all_of_them_are_codes() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "SplitserveErrors"]
    (outcomes,) = re.findall(r'outcome=~"([^"]*)"', rule["expr"])
    for code in outcomes.split("|"):
        error = from_code(code, "")
        assert code == "internal_error" or not isinstance(error, InternalError), code
        assert status_of(error).http >= 500, code


def test_pools_scale_by_their_own_roles_pressure_and_say_no_size_of_their_own() -> None:
    values = {
        "metrics": {"prometheus": "http://prometheus:9090"},
        "router": {"autoscaling": {"enabled": True}},
        "pools": {
            "prefill": {"autoscaling": {"enabled": True, "maxReplicas": 6, "target": 0.5}},
            "decode": {"replicas": 3},
        },
    }
    release = rendered(values)
    (name, scaled), *others = release.kind("ScaledObject").items()
    assert (name, others) == ("demo-prefill", [])
    assert (scaled["spec"]["minReplicaCount"], scaled["spec"]["maxReplicaCount"]) == (1, 6)
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["threshold"] == "0.5"
    assert 'role="prefill"' in trigger["metadata"]["query"]
    sizes = {name: "replicas" in made["spec"] for name, made in release.kind("Deployment").items()}
    assert sizes == {"demo-router": False, "demo-prefill": False, "demo-decode": True}


def test_what_a_pool_scales_by_is_a_query_that_finds_its_pressure(prometheus: Prometheus) -> None:
    values = {
        "nameOverride": "llm",
        "metrics": {"prometheus": "http://prometheus:9090"},
        "worker": {"autoscaling": {"enabled": True}},
    }
    for scaled in rendered(values, "--namespace", "a").kind("ScaledObject").values():
        (trigger,) = scaled["spec"]["triggers"]
        assert prometheus.asked(trigger["metadata"]["query"]) == [{}]


def test_boards_and_alerts_are_installed_where_they_are_asked_for() -> None:
    asked = {"alerts": {"enabled": True, "labels": {"team": "a"}}, "boards": {"enabled": True}}
    release = rendered({"metrics": asked})
    assert release.kind("PrometheusRule")["demo"]["metadata"]["labels"]["team"] == "a"
    assert release.kind("PrometheusRule")["demo"]["spec"]["groups"][0]["rules"] == RULES
    boards = [m for n, m in release.kind("ConfigMap").items() if n.startswith("demo-board-")]
    assert len(boards) == len(BOARDS)
    for manifest in boards:
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert all(json.loads(text)["panels"] for text in manifest["data"].values())
    assert not rendered().kind("PrometheusRule")


def _cases() -> Iterator[dict[str, object]]:
    tests = yaml.safe_load(Path(__file__).with_name("alerts_test.yaml").read_text())["tests"]
    for test in tests:
        yield from test["alert_rule_test"]
