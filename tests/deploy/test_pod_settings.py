"""What an operator adds to pods: files, places, users."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.chart import Manifest, refusal, rendered

_VOLUME = {"name": "authority", "configMap": {"name": "our-ca"}}
_MOUNT = {"name": "authority", "mountPath": "/etc/ca", "readOnly": True}
_FILES: Manifest = {"extraVolumes": [_VOLUME], "extraVolumeMounts": [_MOUNT]}
_WARM_UP: Manifest = {"model": {"cache": {"claim": "models", "warmUp": True}}}
_RANKS: Manifest = {"hosts": 2, "options": {"tensorParallelSize": 2}}
_ONCE = ("demo-warm-up", "demo-test-chat", "demo-test-doctor")
_ARCH = "kubernetes.io/arch"
_PLANNER: Manifest = {"enabled": True, "maxReplicas": {"decode": 4}}


def has_files(pod: Manifest) -> bool:
    """In its only container; both or neither."""
    (container,) = pod["spec"]["containers"]
    has = _VOLUME in pod["spec"]["volumes"]
    assert has == (_MOUNT in container["volumeMounts"])
    return has


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ({"router": _FILES}, {"demo-router"}),
        ({"worker": _FILES}, {"demo-prefill", "demo-decode", "demo-warm-up"}),
        ({"pools": {"decode": _FILES}}, {"demo-decode"}),
        ({"planner": {**_PLANNER, **_FILES}}, {"demo-planner"}),
    ],
)
def test_files_are_mounted_where_they_are_named(values: Manifest, pods: set[str]) -> None:
    found = rendered({"planner": _PLANNER, **_WARM_UP, **values}).pods
    assert {name for name, pod in found.items() if has_files(pod)} == pods


def test_every_host_of_a_group_has_a_pool_s_files() -> None:
    pods = rendered({"pools": {"decode": {**_RANKS, **_FILES}}}).pods
    assert has_files(pods["demo-decode"]) and has_files(pods["demo-decode-1"])


def test_pods_that_run_once_go_where_routers_may() -> None:
    place: Manifest = {
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "ours", "operator": "Exists"}],
        "priorityClassName": "high",
        "topologySpreadConstraints": [{"maxSkew": 1}],
    }
    found: Manifest = place | {"nodeSelector": {"pool": "cpu", _ARCH: "amd64"}}
    pods = rendered({"router": place, **_WARM_UP}).pods
    for name in _ONCE:
        spec = pods[name]["spec"]
        assert {key: spec.get(key) for key in place} == {**found, "topologySpreadConstraints": None}


def test_pods_that_run_once_can_be_kept_out_of_a_mesh_and_keep_their_own_labels() -> None:
    jobs: Manifest = {
        "podLabels": {"sidecar.istio.io/inject": "false"},
        "podAnnotations": {"linkerd.io/inject": "disabled"},
    }
    pods = rendered({"jobs": jobs, **_WARM_UP}).pods
    plain = rendered(_WARM_UP).pods
    for name, pod in pods.items():
        more = {
            key: dict(pod["metadata"].get(key, {})).items()
            - plain[name]["metadata"].get(key, {}).items()
            for key in ("labels", "annotations")
        }
        labels, annotations = (jobs[key].items() for key in ("podLabels", "podAnnotations"))
        told = {"labels": set(labels), "annotations": set(annotations)}
        assert more == (told if name in _ONCE else {"labels": set(), "annotations": set()}), name


def test_pods_go_where_their_images_can_run_unless_they_or_all_say_another_kind() -> None:
    values: Manifest = {"planner": _PLANNER, **_WARM_UP}
    pods = rendered({**values, "pools": {"decode": _RANKS}}).pods
    assert {"demo-planner", "demo-decode-1", *_ONCE} < pods.keys()
    assert all(pod["spec"]["nodeSelector"] == {_ARCH: "amd64"} for pod in pods.values())
    own: Manifest = {"decode": {"nodeSelector": {_ARCH: "arm64", "gpu": "gh200"}}}
    pods = rendered({**values, "pools": own}).pods
    assert pods["demo-decode"]["spec"]["nodeSelector"] == own["decode"]["nodeSelector"]
    assert pods["demo-prefill"]["spec"]["nodeSelector"] == {_ARCH: "amd64"}
    pods = rendered({**values, "image": {"arch": ""}}).pods
    assert not [name for name, pod in pods.items() if "nodeSelector" in pod["spec"]]
    assert "arch" in refusal({"image": {"arch": "x86_64"}})


def test_workers_and_the_hosts_of_their_groups_are_run_as_their_pool_says() -> None:
    """By a runtime that mounts the driver, where that is not the nodes' default."""
    keys = ("runtimeClassName", "schedulerName")
    told: Manifest = {"runtimeClassName": "nvidia", "schedulerName": "gangs"}
    pools: Manifest = {"decode": _RANKS, "prefill": {"runtimeClassName": "kata"}}
    pods = rendered({"worker": told, "pools": pools, **_WARM_UP}).pods
    found = {name: tuple(pod["spec"].get(key) for key in keys) for name, pod in pods.items()}
    assert found["demo-decode"] == found["demo-decode-1"] == ("nvidia", "gangs")
    assert found["demo-prefill"] == ("kata", "gangs"), "a pool's own wins"
    assert {found[name] for name in ("demo-router", *_ONCE)} == {(None, None)}
    assert not [pod for pod in rendered().pods.values() if {*keys} & pod["spec"].keys()]
    assert "runtimeClassName" in refusal({"worker": {"runtimeClassName": "Not A Name"}})


_SPREAD: list[Manifest] = [
    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
]


def test_routers_and_pools_are_spread_as_they_are_told() -> None:
    spread: Manifest = {"topologySpreadConstraints": _SPREAD}
    pods = rendered({"router": spread, "pools": {"decode": spread}}).pods
    found = {name for name, pod in pods.items() if "topologySpreadConstraints" in pod["spec"]}
    assert found == {"demo-router", "demo-decode"}
    assert pods["demo-decode"]["spec"]["topologySpreadConstraints"] == _SPREAD
    pods = rendered({"worker": spread}).pods
    found = {name for name, pod in pods.items() if "topologySpreadConstraints" in pod["spec"]}
    assert found == {"demo-prefill", "demo-decode"}


def test_workers_of_a_release_like_to_share_a_rack_unless_they_have_an_affinity_of_their_own() -> (
    None
):
    near: Manifest = {"topology": {"pairKey": "rack"}}
    pods = rendered(near).pods
    for name in ("demo-prefill", "demo-decode"):
        affinity = pods[name]["spec"]["affinity"]["podAffinity"]
        (liked,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        term = liked["podAffinityTerm"]
        assert term["topologyKey"] == "rack"
        wanted = term["labelSelector"]["matchLabels"].items()
        for partner in ("demo-prefill", "demo-decode"):
            assert wanted <= pods[partner]["metadata"]["labels"].items()
    assert "affinity" not in pods["demo-router"]["spec"]
    own: Manifest = {"nodeAffinity": {}}
    spec = rendered(near | {"pools": {"decode": {"affinity": own}}}).pods["demo-decode"]["spec"]
    assert spec["affinity"] == own
    assert "affinity" not in rendered().pods["demo-decode"]["spec"]


def security(values: Manifest) -> list[dict[str, Any]]:
    """The same for all pods, but what says that none is root."""
    pods = rendered({"planner": _PLANNER, **_WARM_UP, **values}).pods
    found = [dict(pod["spec"]["securityContext"]) for pod in pods.values()]
    for each in found:
        assert each.pop("runAsNonRoot") is True
        assert each.pop("seccompProfile") == {"type": "RuntimeDefault"}
        assert each.pop("fsGroupChangePolicy") == "OnRootMismatch"
    return found


def test_the_cluster_may_say_whose_pods_are() -> None:
    ids = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
    assert all(each == ids for each in security({}))
    assert all(each == {} for each in security({"podSecurity": dict.fromkeys(ids)}))
    ours = security({"podSecurity": {"runAsUser": 1000, "fsGroup": None}})
    assert all(each == {"runAsUser": 1000, "runAsGroup": 65532} for each in ours)


def test_root_is_no_user() -> None:
    assert "runAsUser" in refusal({"podSecurity": {"runAsUser": 0}})


def test_a_pool_without_gpus_takes_none_that_its_node_shows_it() -> None:
    values: Manifest = {"pools": {"decode": {"gpus": {"count": 1}}}}
    release = rendered(values)
    assert release.environ("demo-prefill")["SPLITSERVE_DEVICE"] == "cpu"
    assert release.environ("demo-decode")["SPLITSERVE_DEVICE"] == "cuda"


def test_an_account_s_pod_knows_its_namespace() -> None:
    """By which `splitserve doctor --in-cluster` sees that the account is whole."""
    pods = rendered({"planner": _PLANNER, "router": {"vllmPods": {"selector": "app=vllm"}}}).pods
    for name in ("demo-planner", "demo-router"):
        (account,) = [v for v in pods[name]["spec"]["volumes"] if v["name"] == "account"]
        (item,) = [
            item
            for source in account["projected"]["sources"]
            for item in source.get("downwardAPI", {}).get("items", [])
        ]
        field = {"fieldPath": "metadata.namespace"}
        assert item == {"path": "namespace", "fieldRef": field}
