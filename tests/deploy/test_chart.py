"""The chart installs what was declared, on every Kubernetes that it says, and safely by default."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from cluster.config import RouterOptions, WorkerOptions
from cluster.identity import Role
from cluster.join_token import JOIN_TOKEN
from cluster.locks import check_router, check_worker
from cluster.options import load_options
from cluster.planner_options import PlannerOptions
from planner.pool_limits import limits_of
from router.tenants.api_key import digest_of
from router.tenants.key_file import read_keys
from router.vllm.pods.selection import pod_selection
from tests.deploy.chart import CHART, Manifest, helm, refusal, rendered
from tests.deploy.foreign_schemas import FOREIGN
from tests.deploy.matrix import all_pairs
from tests.deploy.test_gateway import POOL, ROUTE

VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
GPUS: Manifest = {
    "model": {
        "name": "hf://meta/model",
        "authSecret": {"name": "hub"},
        "cache": {"claim": "models"},
    },
    "router": {
        "replicas": 3,
        "store": {"secret": {"name": "redis"}},
        "autoscaling": {"enabled": True},
        "options": {"drainTimeoutS": 90.5},
    },
    "worker": {
        "gpus": {"count": 4},
        "options": {"tensorParallelSize": 4},
        "rdma": {"resource": "rdma/ib", "networks": "fast", "gidIndex": 3},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
    "pools": {
        "decode": {"replicas": 4, "nodeSelector": {"gpu": "h200"}},
        "decode-h100": {"role": "decode", "replicas": 2, "podLabels": {"team": "a"}},
    },
    "topology": {"pairKey": "topology.kubernetes.io/rack"},
    "metrics": {"podMonitor": {"enabled": True}},
}
CERTIFICATES: Manifest = {
    "fleet": {"tls": {"issuer": {"name": "fleet"}}},
    "tls": {"issuer": {"name": "public", "kind": "ClusterIssuer"}},
}
SECRETS: Manifest = {
    "fleet": {"existingSecret": "token", "tls": {"secret": "fleet-certs"}},
    "apiKeys": {"existingSecret": "keys"},
    "tls": {"secret": "certs"},
    "serviceAccount": {"name": "ours"},
    "model": {"cache": {"claim": "new", "create": True, "storageClass": "fast"}},
}
OPEN: Manifest = {
    "apiKeys": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "pools": {"prefill": None},
}
VLLM: Manifest = {
    "router": {"vllmPods": {"selector": "app=vllm,tier in (a,b)", "namespace": "chat"}},
    "pools": {"prefill": None, "decode": None},
}
KEDA: Manifest = {
    "metrics": {
        "prometheus": "http://prometheus.monitoring:9090",
        "alerts": {"enabled": True},
        "boards": {"enabled": True},
    },
    "worker": {"autoscaling": {"enabled": True}},
}
WARM: Manifest = {
    "model": {
        "cache": {"claim": "models", "create": True, "warmUp": True},
        "authSecret": {"name": "hub"},
    },
    "worker": {"env": [{"name": "HF_ENDPOINT", "value": "http://mirror"}]},
}
READ_ONLY: Manifest = {"model": {"cache": {"claim": "models", "readOnly": True}}}
MATRIX = {
    "defaults": {},
    "vllm": VLLM,
    "gpus": GPUS,
    "certificates": CERTIFICATES,
    "secrets": SECRETS,
    "open": OPEN,
    "keda": KEDA,
    "gateway": ROUTE,
    "inference pool": POOL,
    "warm-up": WARM,
    "read-only cache": READ_ONLY,
    **all_pairs(),
}
each_of_the_matrix = pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())


@each_of_the_matrix
def test_helm_finds_nothing_to_complain_of(values: Manifest) -> None:
    done = helm("lint", "--strict", values=values)
    assert done.returncode == 0, done.stdout


@each_of_the_matrix
def test_every_manifest_is_valid_on_every_kubernetes_that_the_chart_is_for(
    values: Manifest,
) -> None:
    manifests = rendered(values).manifests
    for version in VERSIONS:
        for manifest in manifests:
            for part in _of_kubernetes(manifest):
                kubernetes_validate.validate(part, version, strict=True)


def test_what_others_define_has_no_key_that_they_do_not_know() -> None:
    seen = set()
    for values in MATRIX.values():
        for manifest in rendered(values).manifests:
            if (kind := _named(manifest)) in FOREIGN:
                seen.add(kind)
                jsonschema.validate(manifest["spec"], FOREIGN[kind])
    assert seen == FOREIGN.keys(), "each is somewhere in the matrix"


def _named(manifest: Manifest) -> tuple[str, str]:
    return manifest["apiVersion"], manifest["kind"]


def _of_kubernetes(manifest: Manifest) -> list[Manifest]:
    """What of it Kubernetes' own schemas know: of a group its pods."""
    if _named(manifest) not in FOREIGN:
        return [manifest]
    templates = manifest["spec"].get("leaderWorkerTemplate", {})
    kind = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "of-a-group"}}
    return [
        {**kind, "template": templates[name]}
        for name in ("leaderTemplate", "workerTemplate")
        if name in templates
    ]


PROMETHEUS: Manifest = {"podSelector": {"matchLabels": {"app": "prometheus"}}}


def test_what_others_define_is_asked_for_only_where_it_was_asked_for() -> None:
    foreign = {"Certificate", "PodMonitor"}
    assert not foreign & {m["kind"] for m in rendered().manifests}
    assert set(rendered(CERTIFICATES).kind("Certificate")) == {"demo-fleet-tls", "demo-tls"}
    assert rendered(None, "--api-versions", "monitoring.coreos.com/v1/PodMonitor").kind(
        "PodMonitor"
    )


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


@pytest.mark.parametrize("readies", [WARM, READ_ONLY], ids=["warm-up", "read-only cache"])
def test_nobody_but_the_job_writes_to_a_cache_that_is_filled_before(readies: Manifest) -> None:
    release = rendered(readies)
    for name in release.kind("Deployment"):
        spec = release.pods[name]["spec"]
        claims = {v["name"]: v["persistentVolumeClaim"] for v in spec["volumes"] if _is_claim(v)}
        assert claims == {"models": {"claimName": "models", "readOnly": True}}
        (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models"]
        assert mount["readOnly"] and mount["subPath"] == "models"
        assert mount["mountPath"] == f"{release.environ(name)['SPLITSERVE_HOME']}/models"


def test_a_job_fetches_the_model_before_anything_else_is_made() -> None:
    release = rendered(WARM)
    (job,) = release.kind("Job").values()
    (claim,) = release.kind("PersistentVolumeClaim").values()
    hooks = [each["metadata"]["annotations"] for each in (claim, job)]
    assert all(hook["helm.sh/hook"] == "pre-install,pre-upgrade" for hook in hooks)
    assert int(hooks[0]["helm.sh/hook-weight"]) < int(hooks[1]["helm.sh/hook-weight"])
    assert hooks[0]["helm.sh/resource-policy"] == "keep"
    assert "succeeded" not in hooks[0]["helm.sh/hook-delete-policy"], "models stay"
    assert "serviceAccountName" not in job["spec"]["template"]["spec"], "there is none yet"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["models", "pull", "smollm2"]
    environ = release.environ("demo-warm-up")
    assert environ["HF_ENDPOINT"] == "http://mirror"
    assert "HF_TOKEN" in {item["name"] for item in release.env("demo-warm-up")}
    assert not rendered().kind("Job")


@pytest.mark.parametrize("key", ["create", "readOnly", "warmUp"])
def test_a_cache_that_is_prepared_has_a_claim(key: str) -> None:
    told = refusal({"model": {"cache": {key: True}}})
    assert f"model.cache.{key}" in told and "model.cache.claim" in told


IMAGE: Manifest = {"model": {"cache": {"image": "registry.example/models@sha256:0123"}}}


def test_models_come_from_an_image_that_every_router_and_worker_mounts_and_nobody_writes_to() -> (
    None
):
    release = rendered(IMAGE)
    for name in release.kind("Deployment"):
        spec = release.pods[name]["spec"]
        (volume,) = [v for v in spec["volumes"] if v["name"] == "models"]
        reference = "registry.example/models@sha256:0123"
        assert volume["image"] == {"reference": reference, "pullPolicy": "IfNotPresent"}
        (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "models"]
        assert mount["readOnly"] and "subPath" not in mount
        assert mount["mountPath"] == f"{release.environ(name)['SPLITSERVE_HOME']}/models"
    for version in VERSIONS[2:]:
        for manifest in release.manifests:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_an_image_of_models_is_refused_where_no_pod_could_mount_it_and_beside_a_claim() -> None:
    old = helm("template", "demo", "--kube-version", "1.30.2", values=IMAGE)
    assert "model.cache.image: image volumes are of Kubernetes 1.31" in old.stderr
    both = {"model": {"cache": {"image": "models:1", "claim": "models"}}}
    assert "from an image or from a claim" in refusal(both)


def test_ranks_without_gpus_are_refused_by_the_key_that_asks_for_them() -> None:
    decode = {"gpus": {"count": 4}, "options": {"tensorParallelSize": 8}}
    told = refusal({"pools": {"decode": decode}})
    assert "pools.decode.options.tensorParallelSize" in told and "more hosts" in told
    idle: Manifest = {"gpus": {"count": 4}, "options": {"tensorParallelSize": 2}}
    for pool, ranks in ((idle, "is 2"), ({"gpus": {"count": 4}}, "is not given (1)")):
        told = refusal({"pools": {"decode": pool}})
        assert "pools.decode.gpus.count: a worker asks for 4 GPUs" in told
        assert f"options.tensorParallelSize {ranks}" in told and "make it 4" in told
    on_cpus = {"worker": {"options": {"tensorParallelSize": 2}}}
    assert rendered(on_cpus).environ("demo-decode")["SPLITSERVE_TENSOR_PARALLEL_SIZE"] == "2"


def _is_claim(volume: Manifest) -> bool:
    return "persistentVolumeClaim" in volume


def test_the_chart_has_at_most_fifteen_templates() -> None:
    assert len([path for path in (CHART / "templates").rglob("*") if path.is_file()]) <= 15


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
            locks_memory = any("rdma" in name for name in container["resources"]["limits"])
            more = {"add": ["IPC_LOCK"]} if locks_memory else {}
            assert security["capabilities"] == {"drop": ["ALL"], **more}


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


def test_options_become_variables_and_a_pool_s_own_win_over_all_pools_and_numbers_stay() -> None:
    release = rendered(
        {
            "worker": {"options": {"maxNumSeqs": 32, "kvMemoryBytes": 8_589_934_592}},
            "pools": {"decode": {"options": {"maxNumSeqs": 48, "memoryShare": 0.5}}},
            "model": {"options": {"weights": "fp8"}},
        }
    )
    options = load_options(WorkerOptions, environ=release.environ("demo-decode"))
    assert options.engine.max_num_seqs == 48 and options.engine.memory_share == 0.5
    assert options.engine.kv_memory_bytes == 8_589_934_592 and options.model.weights == "fp8"
    options = load_options(WorkerOptions, environ=release.environ("demo-prefill"))
    assert options.engine.max_num_seqs == 32 and options.engine.memory_share == 1.0


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"modle": {"name": "x"}}, "modle"),
        ({"router": {"options": {"maxQueuedRequest": 5}}}, "maxQueuedRequest"),
        ({"worker": {"options": {"port": 7}}}, "port"),
        ({"pools": {"decode": {"options": {"maxNumSeqs": 0}}}}, "maxNumSeqs"),
        ({"pools": {"decode": {"role": "both"}}}, "role"),
        ({"pools": {"other": {"replicas": 1}}}, "role"),
        ({"router": {"options": {"drainTimeoutS": "90s"}}}, "drainTimeoutS"),
        ({"worker": {"options": {"weights": "int5"}}}, "weights"),
        ({"router": {"replicas": "two"}}, "replicas"),
    ],
)
def test_values_that_are_wrong_are_refused_with_their_key(values: Manifest, key: str) -> None:
    said = refusal(values)
    assert "values don't meet the specifications" in said and key in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pools": {"router": {"role": "decode"}}}, "the router has that name"),
        ({"pools": {"planner": {"role": "decode"}}}, "the planner has that name"),
        ({"pools": {"picker": {"role": "decode"}}}, "the gateway's picker has that name"),
        (
            {"router": {"service": {"externalTrafficPolicy": "Local"}}},
            "router.service.type is ClusterIP",
        ),
        ({"model": {"cache": {"create": True}}}, "name the claim"),
    ],
)
def test_values_that_contradict_each_other_are_refused_in_words(
    values: Manifest, said: str
) -> None:
    assert said in refusal(values)


def test_a_release_whose_name_no_service_may_have_is_told_to_choose_another() -> None:
    assert "give nameOverride one" in helm("template", "1my.rel").stderr
    assert helm("template", "1my.rel", values={"nameOverride": "llm"}).returncode == 0


def test_a_router_is_waited_for_as_long_as_the_slowest_pool_may_load() -> None:
    release = rendered({"pools": {"decode": {"startupMinutes": 90}}})
    spec = release.kind("Deployment")["demo-router"]["spec"]
    probe = spec["template"]["spec"]["containers"][0]["startupProbe"]
    assert spec["progressDeadlineSeconds"] == 5820
    assert probe["periodSeconds"] * probe["failureThreshold"] == 5520


def test_a_pool_of_which_prometheus_knows_nothing_is_not_taken_for_one_that_is_idle() -> None:
    found = rendered({**KEDA, "pools": {"decode": {"replicas": 3}}}).kind("ScaledObject")
    for name, least in (("demo-decode", 3), ("demo-prefill", 1)):
        (trigger,) = found[name]["spec"]["triggers"]
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        fallback = found[name]["spec"]["fallback"]
        assert (fallback["behavior"], fallback["replicas"]) == ("currentReplicasIfHigher", least)


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


def test_a_router_s_streams_have_ten_minutes_to_end_and_its_pod_no_less() -> None:
    release = rendered()
    options = load_options(RouterOptions, environ=release.environ("demo-router"))
    assert options.drain_timeout_s == 600
    assert release.pods["demo-router"]["spec"]["terminationGracePeriodSeconds"] == 600 + 35
    process_s = load_options(RouterOptions, environ={}).drain_timeout_s
    own = rendered({"router": {"options": {"drainTimeoutS": None}}}).pods["demo-router"]["spec"]
    assert own["terminationGracePeriodSeconds"] == process_s + 35


def test_gateways_speak_tls_to_a_door_that_does() -> None:
    def protocols(values: Manifest) -> list[str | None]:
        ports = rendered(values).kind("Service")["demo"]["spec"]["ports"]
        return [port.get("appProtocol") for port in ports]

    assert protocols({}) == [None, "kubernetes.io/h2c"]
    assert protocols(CERTIFICATES) == [None, None]


def test_the_key_that_is_made_opens_the_router_and_the_token_is_a_secret(tmp_path: Path) -> None:
    secrets = rendered().kind("Secret")
    made = {name: _decoded(secret["data"]) for name, secret in secrets.items()}
    (tmp_path / "keys.json").write_text(made["demo-api-keys"]["keys.json"])
    (record,) = read_keys(tmp_path / "keys.json").values()
    assert record.digest == digest_of(made["demo-api-keys"]["key"]) and record.tenant == "default"
    assert made["demo-api-keys"]["key"].startswith(f"sk-{record.id}-")
    assert len(made["demo-fleet"]["join-token"]) == 48
    assert "Secret" not in {m["kind"] for m in rendered(SECRETS).manifests}


@pytest.mark.parametrize(
    ("options", "least_s"),
    [
        ({"handOnS": 300}, 300),
        ({"handOnS": 40.5, "drainTimeoutS": 10}, 41),
        ({"handOnS": 5, "drainTimeoutS": 90.5}, 91),
        ({"drainTimeoutS": 5}, 20),
        ({}, 30),
    ],
)
def test_a_worker_is_not_killed_while_it_drains_or_hands_its_cache_on(
    options: dict[str, float], least_s: int
) -> None:
    ranks = {"hosts": 2, "options": {**options, "tensorParallelSize": 2}}
    pods = rendered({"pools": {"decode": ranks, "prefill": {"options": options}}}).pods
    graces = {name: pod["spec"].get("terminationGracePeriodSeconds") for name, pod in pods.items()}
    assert graces["demo-prefill"] == graces["demo-decode"] == least_s + 30
    assert graces["demo-decode-1"] == least_s + 45, "a follower outlasts its leader"


def test_a_pool_for_each_type_of_gpu_takes_its_devices_and_drains_as_long_as_it_may() -> None:
    release = rendered(GPUS)
    assert set(release.kind("Deployment")) == {
        *("demo-router", "demo-prefill", "demo-decode", "demo-decode-h100")
    }
    pod = release.pods["demo-decode-h100"]
    (container,) = pod["spec"]["containers"]
    limits = container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 4 and limits["rdma/ib"] == 1 and limits["memory"] == "16Gi"
    assert container["image"].endswith("-cuda") and container["args"] == ["decode-worker"]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert release.pods["demo-router"]["spec"]["terminationGracePeriodSeconds"] == 91 + 35
    assert rendered().pods["demo-decode"]["spec"]["containers"][0]["image"].endswith("-cpu")


def test_a_pool_tolerates_the_taint_that_nodes_with_its_gpus_usually_have() -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists"}
    other = {"key": "spot", "operator": "Exists"}
    values: Manifest = {"gpus": {"count": 1}, "tolerations": [other, taint]}
    amd: Manifest = {"gpus": {"count": 1, "resource": "amd.com/gpu"}}
    pods = rendered({"pools": {"decode": values, "prefill": amd}}).pods
    assert pods["demo-decode"]["spec"]["tolerations"] == [other, taint]
    assert pods["demo-prefill"]["spec"]["tolerations"] == [taint | {"key": "amd.com/gpu"}]
    assert "tolerations" not in rendered().pods["demo-decode"]["spec"]


@pytest.mark.parametrize(
    ("pool", "surge"),
    [
        ({}, 1),
        ({"gpus": {"count": 1}}, 0),
        ({"gpus": {"count": 1}, "surge": 2}, 2),
        ({"surge": 0}, 0),
    ],
)
def test_a_pool_is_updated_with_as_many_workers_more_as_it_may_have(
    pool: Manifest, surge: int
) -> None:
    update = {"maxUnavailable": 0 if surge else 1, "maxSurge": surge}
    group = {"hosts": 2, "options": {"tensorParallelSize": 2}}
    release = rendered({"pools": {"decode": pool, "prefill": pool | group}})
    deployment = release.kind("Deployment")["demo-decode"]["spec"]
    assert deployment["strategy"]["rollingUpdate"] == update
    rollout = release.kind("LeaderWorkerSet")["demo-prefill"]["spec"]["rolloutStrategy"]
    assert rollout["rollingUpdateConfiguration"] == update


def test_a_service_may_keep_to_the_node_that_was_asked() -> None:
    service: Manifest = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    spec = rendered({"router": {"service": service}}).kind("Service")["demo"]["spec"]
    assert spec["externalTrafficPolicy"] == "Local"
    assert "externalTrafficPolicy" not in rendered().kind("Service")["demo"]["spec"]


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


def test_the_file_of_values_shows_every_key_that_the_schema_knows() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert _keys_of(schema) - {"global"} == _keys_in(values)


def test_roles_of_pools_are_those_of_workers() -> None:
    pools = yaml.safe_load((CHART / "values.yaml").read_text())["pools"]
    assert [pool["role"] for pool in pools.values()] == [
        role.value for role in (Role.PREFILL, Role.DECODE)
    ]


def _decoded(data: dict[str, str]) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


_FREE = frozenset({"options", "pools", "requests", "limits"})
"""Whose keys are not all in the file."""


def _keys_of(schema: dict[str, Any], path: str = "") -> set[str]:
    found: set[str] = set()
    for name, part in schema.get("properties", {}).items():
        here = f"{path}.{name}".removeprefix(".")
        inner = set() if name in _FREE else _keys_of(part, here)
        found |= inner or {here}
    return found


def _keys_in(values: dict[str, Any], path: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in values.items():
        here = f"{path}.{name}".removeprefix(".")
        inner = _keys_in(value, here) if isinstance(value, dict) and name not in _FREE else set()
        found |= inner or {here}
    return found
