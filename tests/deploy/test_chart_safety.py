"""What the chart lets pods, clients and neighbours do: no more than they need."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from cluster.config import RouterOptions, WorkerOptions
from cluster.join_token import JOIN_TOKEN
from cluster.locks import check_router, check_worker
from cluster.options import load_options
from cluster.planner_options import PlannerOptions
from planner.pool_limits import limits_of
from router.tenants.api_key import digest_of
from router.tenants.key_file import read_keys
from tests.deploy.cases import CERTIFICATES, PROMETHEUS, SECRETS, each_of_the_matrix
from tests.deploy.chart import Manifest, refusal, rendered


@each_of_the_matrix
def test_nobody_is_root_writes_beside_volumes_or_may_more_than_the_least(values: Manifest) -> None:
    for pod in rendered(values).pods.values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("resource", ["", "rdma/ib"])
def test_a_capability_is_added_for_rdma_alone_and_only_where_that_is_said(resource: str) -> None:
    asked: Manifest = {"rdma": {"resource": resource, "ipcLock": True}}
    pods = rendered({"pools": {"decode": asked, "prefill": {"rdma": {"resource": resource}}}}).pods
    more = {"add": ["IPC_LOCK"]} if resource else {}
    for name, added in (("demo-decode", more), ("demo-prefill", {}), ("demo-router", {})):
        (container,) = pods[name]["spec"]["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], **added}, name


@each_of_the_matrix
def test_every_process_accepts_what_it_is_told_and_has_its_locks(
    values: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, "the-token-of-this-fleet")
    release = rendered(values)
    for name in release.kind("Deployment"):
        environ = release.environ(name) | {"SPLITSERVE_ADVERTISE_HOST": "10.0.0.7"}
        if name == "demo-router":
            router = load_options(RouterOptions, environ=environ)
            check_router(router)
            assert router.fleet_port == 50052
            assert router.aside.fleet_metrics_port == 9400
        elif name == "demo-planner":
            planner = load_options(PlannerOptions, environ=environ)
            assert planner.router == "dns+demo-routers:50052"
            assert [each.pool for each in limits_of(planner.pools)] == ["decode"]
        else:
            worker = load_options(WorkerOptions, environ=environ)
            check_worker(worker)
            assert worker.router == "dns+demo-routers:50052"


def test_the_key_that_is_made_opens_the_router_and_the_token_is_a_secret(tmp_path: Path) -> None:
    secrets = rendered().kind("Secret")
    made = {name: _decoded(secret["data"]) for name, secret in secrets.items()}
    (tmp_path / "keys.json").write_text(made["demo-api-keys"]["keys.json"])
    (record,) = read_keys(tmp_path / "keys.json").values()
    assert record.digest == digest_of(made["demo-api-keys"]["key"]) and record.tenant == "default"
    assert made["demo-api-keys"]["key"].startswith(f"sk-{record.id}-")
    assert len(made["demo-fleet"]["join-token"]) == 48
    assert "Secret" not in {m["kind"] for m in rendered(SECRETS).manifests}


@each_of_the_matrix
def test_services_budgets_and_policies_find_the_pods_that_they_are_for(values: Manifest) -> None:
    release = rendered(values)
    labels = {name: pod["metadata"]["labels"] for name, pod in release.pods.items()}

    def found(selector: dict[str, str]) -> set[str]:
        return {name for name, own in labels.items() if selector.items() <= own.items()}

    for service in release.kind("Service").values():
        assert found(service["spec"]["selector"]) == {"demo-router"}
        ports = {p["name"] for p in release.pods["demo-router"]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for name, budget in release.kind("PodDisruptionBudget").items():
        assert found(budget["spec"]["selector"]["matchLabels"]) == {name, f"{name}-1"} & set(labels)
    for name, deployment in release.kind("Deployment").items():
        assert found(deployment["spec"]["selector"]["matchLabels"]) == {name}
    everybody = {n for n in labels if n == "demo-router" or "splitserve/pool" in labels[n]}
    for name, policy in release.kind("NetworkPolicy").items():
        selector = policy["spec"]["podSelector"]
        for_workers = {n for n in found(selector["matchLabels"]) if "splitserve/pool" in labels[n]}
        is_for = for_workers if "matchExpressions" in selector else found(selector["matchLabels"])
        alone = name in ("demo-router", "demo-planner")
        assert is_for == ({name} if alone else everybody - {"demo-router"})


@pytest.mark.parametrize("values", [{}, CERTIFICATES], ids=["plain", "certificates"])
def test_prometheus_asks_routers_and_workers_at_one_port_that_no_client_s_service_has(
    values: Manifest,
) -> None:
    monitored = {**values, "metrics": {"podMonitor": {"enabled": True}}}
    release = rendered(monitored | {"networkPolicy": {"metrics": [PROMETHEUS]}})
    (endpoint,) = release.kind("PodMonitor")["demo"]["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "interval": "15s"}
    for name in release.kind("Deployment"):
        (container,) = release.pods[name]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == 9400, name
    for service in release.kind("Service").values():
        assert "metrics" not in {port["targetPort"] for port in service["spec"].get("ports", [])}
    for name in ("demo-router", "demo-workers"):
        rules = release.kind("NetworkPolicy")[name]["spec"]["ingress"]
        (rule,) = [
            each
            for each in rules
            if {"port": "metrics", "protocol": "TCP"} in each.get("ports", [])
        ]
        assert rule["from"] == [PROMETHEUS]


@pytest.mark.parametrize("values", [{}, CERTIFICATES], ids=["plain", "certificates"])
def test_probes_come_to_a_port_that_no_client_can_flood_and_the_nodes_may_reach(
    values: Manifest,
) -> None:
    release = rendered({**values, "networkPolicy": {"clients": [PROMETHEUS]}})
    for name in release.kind("Deployment"):
        (container,) = release.pods[name]["spec"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == "metrics" and "scheme" not in asked, name
    asked = release.pods["demo-router"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    assert asked["path"] == "/health"
    for policy in release.kind("NetworkPolicy").values():
        rule = {"ports": [{"port": "metrics", "protocol": "TCP"}]}
        assert rule in policy["spec"]["ingress"], "from anywhere, and so from nodes"


def _decoded(data: dict[str, str]) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


@each_of_the_matrix
def test_without_a_registry_no_pod_asks_for_an_image_that_a_stranger_might_publish(
    values: Manifest,
) -> None:
    assert _registries(values) <= {"localhost"}
    assert _registries({**values, "image": {"registry": "r.example/team"}}) <= {"r.example"}


def _registries(values: Manifest) -> set[str]:
    specs = [pod["spec"] for pod in rendered(values).pods.values()]
    images = [each["image"] for spec in specs for each in spec["containers"]]
    return {image.partition("/")[0] for image in images}


def test_an_image_is_named_by_registry_repository_and_digest_or_by_its_repository_alone() -> None:
    mine: Manifest = {"repository": "r.example/llm/router", "tag": "7"}
    image: Manifest = {"registry": "", "router": mine, "worker": {"digest": "sha256:12"}}
    pods = rendered({"image": image}).pods
    found = {name: pod["spec"]["containers"][0]["image"] for name, pod in pods.items()}
    assert found["demo-router"] == "r.example/llm/router:7"
    assert found["demo-decode"] == "splitserve/worker@sha256:12"
    assert "registry" in refusal({"image": {"registry": "r.example/"}})
