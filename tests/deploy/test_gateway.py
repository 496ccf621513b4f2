"""What the chart has of the Gateway API: a route, and a pool whose endpoints the router picks."""

from __future__ import annotations

import pytest

from cluster.config import RouterOptions
from cluster.options import load_options
from tests.deploy.chart import Manifest, refusal, rendered

ROUTE: Manifest = {
    "gateway": {
        "parentRefs": [{"name": "public", "namespace": "infra", "sectionName": "https"}],
        "hostnames": ["llm.example.com"],
    },
}
POOL: Manifest = {
    "gateway": {"parentRefs": [{"name": "public"}], "inferencePool": {"enabled": True}},
    "router": {"vllmPods": {"selector": "app=vllm,tier==gold", "port": 8100}},
    "pools": {"prefill": None, "decode": None},
}


def test_without_a_pool_the_route_leads_to_the_router() -> None:
    release = rendered(ROUTE)
    (route,) = release.kind("HTTPRoute").values()
    (rule,) = route["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    ports = {port["name"]: port for port in release.kind("Service")["demo"]["spec"]["ports"]}
    assert backend == {"name": "demo", "port": ports["http"]["port"]}
    assert not release.kind("InferencePool") and "demo-picker" not in release.kind("Service")
    assert "SPLITSERVE_EXT_PROC_PORT" not in release.environ("demo-router")


def test_a_pool_has_vllms_pods_and_the_router_picks_among_them() -> None:
    release = rendered(POOL)
    (route,) = release.kind("HTTPRoute").values()
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    pool = release.kind("InferencePool")[backend["name"]]["spec"]
    assert backend["kind"] == "InferencePool"
    assert pool["selector"]["matchLabels"] == {"app": "vllm", "tier": "gold"}
    assert pool["targetPorts"] == [{"number": 8100}]
    picker = pool["endpointPickerRef"]
    assert picker["failureMode"] == "FailClose"
    (port,) = release.kind("Service")[picker["name"]]["spec"]["ports"]
    assert port["port"] == picker["port"]["number"]
    options = load_options(RouterOptions, environ=release.environ("demo-router"))
    (container,) = release.pods["demo-router"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert options.ext_proc_port == ports[port["targetPort"]]
    (rule, *_) = release.kind("NetworkPolicy")["demo-router"]["spec"]["ingress"]
    assert {each["port"] for each in rule["ports"]} == {"http", "grpc", port["targetPort"]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gateway": {"inferencePool": {"enabled": True}}}, "router.vllmPods.selector"),
        (POOL | {"router": {"vllmPods": {"selector": "tier in (a,b)"}}}, "name=value"),
        (
            POOL | {"router": {"vllmPods": {"selector": "a=b", "namespace": "other"}}},
            "router.vllmPods.namespace",
        ),
        (ROUTE | {"tls": {"secret": "certs"}}, "tls.secret"),
        ({"gateway": {"parentRef": []}}, "parentRef"),
        ({"gateway": {"inferencePool": {"failureMode": "Open"}}}, "failureMode"),
    ],
    ids=["no servers", "other selectors", "elsewhere", "tls", "a typo", "no such mode"],
)
def test_what_cannot_be_is_refused_by_its_key(values: Manifest, words: str) -> None:
    assert words in refusal(values)
