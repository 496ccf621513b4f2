"""The router of a release: its doors, its end, and the vLLM servers behind it."""

from __future__ import annotations

import pytest

from cluster.config import RouterOptions
from cluster.options import load_options
from router.vllm.pods.selection import pod_selection
from tests.deploy.cases import CERTIFICATES, MATRIX, VLLM
from tests.deploy.chart import Manifest, refusal, rendered
from tests.deploy.test_gateway import POOL


def test_a_router_is_waited_for_as_long_as_the_slowest_pool_may_load() -> None:
    release = rendered({"pools": {"decode": {"startupMinutes": 90}}})
    spec = release.kind("Deployment")["demo-router"]["spec"]
    probe = spec["template"]["spec"]["containers"][0]["startupProbe"]
    assert spec["progressDeadlineSeconds"] == 5820
    assert probe["periodSeconds"] * probe["failureThreshold"] == 5520


def test_keys_in_the_store_need_no_file_and_a_key_for_vllm_is_a_file() -> None:
    release = rendered(
        {
            "apiKeys": {"inStore": True},
            "router": {
                "store": {"url": "redis://r"},
                "vllmKey": {"name": "v"},
                "options": {"vllm": "http://10.0.0.9:8000"},
            },
        }
    )
    assert set(release.kind("Secret")) == {"demo-fleet"}
    options = load_options(RouterOptions, environ=release.environ("demo-router"))
    assert options.api_keys == "store"
    assert options.vllm_servers.vllm_key_file == "/etc/splitserve/vllm/key"
    volumes = {volume["name"] for volume in release.pods["demo-router"]["spec"]["volumes"]}
    assert "vllm-key" in volumes and "api-keys" not in volumes


def test_a_router_may_look_at_vllms_pods_where_that_is_asked_for_and_nobody_may_else() -> None:
    release = rendered(VLLM)
    (role,) = release.kind("Role").values()
    assert role["metadata"]["namespace"] == "chat"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    (binding,) = release.kind("RoleBinding").values()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account = release.pods["demo-router"]["spec"]["serviceAccountName"]
    assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [
        (account, "default")
    ]
    assert account in release.kind("ServiceAccount") and account != "demo"
    others = [kept for kept in MATRIX.values() if kept not in (VLLM, POOL)]
    for values in (kept for kept in others if "planner" not in kept):
        made = rendered(values)
        assert not made.kind("Role") and not made.kind("RoleBinding")
        assert not any("projected" in str(pod) for pod in made.pods.values())


def test_what_the_router_is_told_of_vllms_pods_is_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = rendered(VLLM).environ("demo-router")
    named = load_options(RouterOptions, environ=environ).vllm_servers.vllm
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = pod_selection(named or "")
    assert (found.namespace, found.labels) == ("chat", "app=vllm,tier in (a,b)")
    assert (found.port, found.lease_s) == (8000, 30.0)
    mounts = rendered(VLLM).pods["demo-router"]["spec"]["containers"][0]["volumeMounts"]
    assert str(found.cluster.token_file.parent) in {mount["mountPath"] for mount in mounts}


def test_two_words_on_where_vllm_servers_are_are_one_too_many() -> None:
    both = {"vllmPods": {"selector": "app=vllm"}, "options": {"vllm": "http://10.0.0.9:8000"}}
    assert "leave one out" in refusal({"router": both})


HTTPS_PODS: Manifest = {"selector": "app=vllm", "scheme": "https"}


def test_a_key_for_pods_that_answer_http_is_shown_where_that_is_said_only() -> None:
    values: Manifest = {"vllmPods": {"selector": "app=vllm"}, "vllmKey": {"name": "v"}}
    assert "router.options.vllmKeyInClear=true" in refusal({"router": values})
    environ = rendered({"router": values | {"vllmPods": HTTPS_PODS}}).environ("demo-router")
    place = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    found = pod_selection(environ["SPLITSERVE_VLLM"], place)
    assert found.scheme == "https"
    values["options"] = {"vllmKeyInClear": True}
    environ = rendered({"router": values}).environ("demo-router")
    assert load_options(RouterOptions, environ=environ).vllm_servers.vllm_key_in_clear


def test_a_router_s_streams_have_ten_minutes_to_end_and_its_pod_no_less() -> None:
    release = rendered()
    options = load_options(RouterOptions, environ=release.environ("demo-router"))
    assert options.drain_timeout_s == 600
    assert release.pods["demo-router"]["spec"]["terminationGracePeriodSeconds"] == 600 + 35
    process_s = load_options(RouterOptions, environ={}).drain_timeout_s
    own = rendered({"router": {"options": {"drainTimeoutS": None}}}).pods["demo-router"]["spec"]
    assert own["terminationGracePeriodSeconds"] == process_s + 35


def test_routers_that_scale_by_themselves_begin_at_their_replicas_and_say_no_number() -> None:
    scaled: Manifest = {"replicas": 2, "autoscaling": {"enabled": True, "maxReplicas": 5}}
    release = rendered({"router": scaled | {"store": {"url": "redis://r"}}})
    spec = release.kind("HorizontalPodAutoscaler")["demo-router"]["spec"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "demo-router"}
    assert spec["scaleTargetRef"] == target
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 5)
    (metric,) = spec["metrics"]
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    assert "replicas" not in release.kind("Deployment")["demo-router"]["spec"]
    by_hand = rendered()
    assert by_hand.kind("HorizontalPodAutoscaler") == {}
    assert by_hand.kind("Deployment")["demo-router"]["spec"]["replicas"] == 1


def test_gateways_speak_tls_to_a_door_that_does() -> None:
    def protocols(values: Manifest) -> list[str | None]:
        ports = rendered(values).kind("Service")["demo"]["spec"]["ports"]
        return [port.get("appProtocol") for port in ports]

    assert protocols({}) == [None, "kubernetes.io/h2c"]
    assert protocols(CERTIFICATES) == [None, None]


def test_a_service_may_keep_to_the_node_that_was_asked() -> None:
    service: Manifest = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    spec = rendered({"router": {"service": service}}).kind("Service")["demo"]["spec"]
    assert spec["externalTrafficPolicy"] == "Local"
    assert "externalTrafficPolicy" not in rendered().kind("Service")["demo"]["spec"]
