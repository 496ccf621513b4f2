"""What the chart has of the Gateway API: a route, and a pool whose endpoints the router picks."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from cluster.config import RouterOptions
from cluster.options import load_options
from tests.deploy.chart import Manifest, refusal, rendered

GATEWAY_GROUPS = ("gateway.networking.k8s.io", "inference.networking.k8s.io")
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
Schema = dict[str, Any]


def _keys(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


TEXT: Schema = {"type": "string", "minLength": 1}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
BACKEND = _keys({"group": TEXT, "kind": TEXT, "name": TEXT, "port": PORT}, "name")
MATCH = _keys({"path": _keys({"type": {"enum": ["PathPrefix", "Exact"]}, "value": TEXT})})
SPECS = {
    "HTTPRoute": _keys(
        {
            "parentRefs": {
                "type": "array",
                "items": _keys(
                    {"name": TEXT, "namespace": TEXT, "sectionName": TEXT, "port": PORT}, "name"
                ),
            },
            "hostnames": {"type": "array", "items": TEXT, "maxItems": 16},
            "rules": {
                "type": "array",
                "items": _keys(
                    {
                        "matches": {"type": "array", "items": MATCH},
                        "timeouts": _keys({"request": {"pattern": "^[0-9]+(h|m|s|ms)$"}}),
                        "backendRefs": {"type": "array", "items": BACKEND},
                    }
                ),
            },
        }
    ),
    "InferencePool": _keys(
        {
            "selector": _keys({"matchLabels": {"additionalProperties": TEXT}}, "matchLabels"),
            "targetPorts": {
                "type": "array",
                "items": _keys({"number": PORT}, "number"),
                "minItems": 1,
                "maxItems": 8,
            },
            "endpointPickerRef": _keys(
                {
                    "name": TEXT,
                    "port": _keys({"number": PORT}, "number"),
                    "failureMode": {"enum": ["FailOpen", "FailClose"]},
                },
                "name",
            ),
        },
        "selector",
        "targetPorts",
        "endpointPickerRef",
    ),
}
"""Of the definitions (Gateway API 1.4, its inference extension 1.0) what the chart says, and no
other key."""


@pytest.mark.parametrize("values", [ROUTE, POOL], ids=["route", "pool"])
def test_what_the_gateway_api_is_told_is_what_it_defines(values: Manifest) -> None:
    found = [m for m in rendered(values).manifests if m["apiVersion"].startswith(GATEWAY_GROUPS)]
    assert found
    for manifest in found:
        assert manifest["apiVersion"].endswith("/v1")
        jsonschema.validate(manifest["spec"], SPECS[manifest["kind"]])


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
    (rule, _) = release.kind("NetworkPolicy")["demo-router"]["spec"]["ingress"]
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
