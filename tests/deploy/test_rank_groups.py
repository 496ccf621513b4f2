"""Workers whose ranks span hosts: a group of pods, or a pod that asks a Ray cluster for more."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cluster.config import WorkerOptions
from cluster.launcher.ray.bundles import OWN, WORKER_LABEL
from cluster.launcher.ray.open_ray import open_ray_of
from cluster.options import load_options
from tests.deploy.chart import Manifest, Rendered, helm, refusal, rendered

GROUP: Manifest = {
    "worker": {"rdma": {"resource": "rdma/ib", "gidIndex": 3}},
    "pools": {
        "decode": {
            "hosts": 2,
            "replicas": 3,
            "gpus": {"count": 8},
            "options": {"tensorParallelSize": 16, "drainTimeoutS": 90.5},
        }
    },
}
CLUSTER: Manifest = {"address": "ray-head:6379", "secret": {"name": "ray"}}
PORT = 6379


def group_of(release: Rendered) -> Manifest:
    (found,) = release.kind("LeaderWorkerSet").values()
    return found


def container_of(release: Rendered, pod: str) -> Manifest:
    (found,) = release.pods[pod]["spec"]["containers"]
    return dict(found)


def told(release: Rendered, pod: str) -> WorkerOptions:
    """What a worker understands of its variables, with the address that Kubernetes gives it."""
    environ = release.environ(pod)
    environ |= {"SPLITSERVE_ADVERTISE_HOST": "10.1.2.3"}
    known = re.compile(r"\$\((\w+)\)")
    said = {name: known.sub(lambda at: environ[at[1]], text) for name, text in environ.items()}
    return load_options(WorkerOptions, environ=said)


def test_a_pool_of_several_hosts_is_a_set_of_groups_and_the_others_are_as_before() -> None:
    release = rendered(GROUP)
    assert set(release.kind("Deployment")) == {"demo-router", "demo-prefill"}
    spec = group_of(release)["spec"]
    assert group_of(release)["metadata"]["name"] == "demo-decode"
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (3, 2)
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert spec["startupPolicy"] == "LeaderCreated", "each waits for the other"


def test_the_leader_is_told_where_its_ray_is_joined_and_for_how_long_it_waits() -> None:
    engine = told(rendered(GROUP), "demo-decode").engine
    assert (engine.rank_launcher, engine.tensor_parallel_size, engine.ray_wait_s) == (
        "ray",
        16,
        1800,
    )
    hosts = open_ray_of(engine.ray_listen, engine.ray_hosts, engine.ray_address)
    assert hosts is not None and (hosts.host, hosts.port) == ("10.1.2.3", PORT)
    assert hosts.num_ranks_of_a_host(16) == 8
    assert told(rendered(GROUP), "demo-prefill").engine.rank_launcher == "processes"


def test_a_follower_joins_its_leader_and_no_sooner_than_that_listens() -> None:
    script = container_of(rendered(GROUP), "demo-decode-1")["command"][-1]
    assert script.index("until") < script.index("exec ray start")
    assert 'getent hosts "$LWS_LEADER_ADDRESS"' in script
    assert f'/dev/tcp/$leader/{PORT}"' in script
    assert f'--address="$leader:{PORT}"' in script and "--block" in script
    assert "--num-gpus=8" in script and "splitserve_rank" not in script
    on_cpus = {"pools": {"decode": {"hosts": 3, "options": {"tensorParallelSize": 5}}}}
    script = container_of(rendered(on_cpus), "demo-decode-1")["command"][-1]
    assert """--resources='{"splitserve_rank": 2}'""" in script and "num-gpus" not in script


def test_hosts_of_a_group_have_the_same_room_and_rights_and_only_the_leader_the_fleets_token() -> (
    None
):
    release = rendered(GROUP)
    leader, follower = (container_of(release, name) for name in ("demo-decode", "demo-decode-1"))
    for key in ("image", "resources", "securityContext", "volumeMounts"):
        assert leader[key] == follower[key], key
    assert follower["resources"]["limits"]["nvidia.com/gpu"] == 8
    pods = release.pods
    assert pods["demo-decode"]["spec"]["volumes"] == pods["demo-decode-1"]["spec"]["volumes"]
    assert pods["demo-decode-1"]["spec"]["automountServiceAccountToken"] is False
    assert "SPLITSERVE_JOIN_TOKEN" in {item["name"] for item in leader["env"]}
    assert "SPLITSERVE_JOIN_TOKEN" not in {item["name"] for item in follower["env"]}
    assert release.environ("demo-decode-1")["UCX_IB_GID_INDEX"] == "3"


def test_ray_asks_for_a_token_of_its_own_which_is_made_only_for_groups() -> None:
    release = rendered(GROUP)
    for pod in ("demo-decode", "demo-decode-1"):
        assert release.environ(pod)["RAY_AUTH_MODE"] == "token"
        (source,) = (item for item in release.env(pod) if item["name"] == "RAY_AUTH_TOKEN")
        assert source["valueFrom"]["secretKeyRef"] == {"name": "demo-fleet", "key": "ray-token"}
    data = release.kind("Secret")["demo-fleet"]["data"]
    assert data["ray-token"] != data["join-token"]
    assert set(rendered().kind("Secret")["demo-fleet"]["data"]) == {"join-token"}


def test_a_follower_waits_at_its_end_for_the_leader_that_still_needs_its_ranks() -> None:
    release = rendered(GROUP)
    follower = container_of(release, "demo-decode-1")
    ending = follower["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert "</tmp/leader" in ending and f'while (exec 3<>"/dev/tcp/$leader/{PORT}")' in ending
    assert "LWS_LEADER_ADDRESS" not in ending, "a new leader has the name of the old one"
    leader_s, follower_s = (
        release.pods[name]["spec"]["terminationGracePeriodSeconds"]
        for name in ("demo-decode", "demo-decode-1")
    )
    assert 91 + 30 == leader_s < follower_s


def test_followers_are_no_workers_to_whoever_counts_those() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in rendered(GROUP).pods.items()}
    component = "app.kubernetes.io/component"
    assert labels["demo-decode"][component] == "decode-worker"
    assert labels["demo-decode-1"][component] == "decode-ranks"
    ports = {port["name"] for port in container_of(rendered(GROUP), "demo-decode-1")["ports"]}
    assert "metrics" not in ports, "Prometheus finds pods by it"


def test_a_set_of_groups_scales_by_its_own_kind() -> None:
    scaled = GROUP | {
        "metrics": {"prometheus": "http://p:9090"},
        "worker": {"autoscaling": {"enabled": True}},
    }
    release = rendered(scaled)
    targets = {
        name: found["spec"]["scaleTargetRef"]
        for name, found in release.kind("ScaledObject").items()
    }
    assert targets["demo-decode"] == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "demo-decode",
    }
    assert targets["demo-prefill"] == {"name": "demo-prefill"}
    assert "replicas" not in group_of(release)["spec"]


def test_the_hosts_of_a_group_share_a_rack_where_that_is_asked_for() -> None:
    near = {"topology": {"groupKey": "rack", "pairKey": "zone"}}
    for pod in ("demo-decode", "demo-decode-1"):
        affinity = rendered(GROUP | near).pods[pod]["spec"]["affinity"]["podAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        assert (term["topologyKey"], term["matchLabelKeys"]) == (
            "rack",
            ["leaderworkerset.sigs.k8s.io/group-key"],
        )
        (liked,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
        assert liked["podAffinityTerm"]["topologyKey"] == "zone"
    alone = {"topology": {"groupKey": "rack", "groupExclusive": True}}
    release = rendered(GROUP | alone)
    annotations = group_of(release)["metadata"]["annotations"]
    assert annotations["leaderworkerset.sigs.k8s.io/exclusive-topology"] == "rack"
    assert "affinity" not in release.pods["demo-decode"]["spec"]


def test_a_kubernetes_that_would_put_all_groups_into_one_rack_is_told_of() -> None:
    near = GROUP | {"topology": {"groupKey": "rack"}}
    done = helm("template", "demo", "--kube-version", "1.30.2", values=near)
    assert done.returncode != 0 and "topology.groupExclusive" in done.stderr
    alone = GROUP | {"topology": {"groupKey": "rack", "groupExclusive": True}}
    assert helm("template", "demo", "--kube-version", "1.30.2", values=alone).returncode == 0


def test_a_pod_that_uses_a_ray_cluster_is_a_node_of_it_and_asks_it_for_ranks() -> None:
    secret = {"secret": {"name": "ray", "key": "token"}}
    peers = {"peers": [{"podSelector": {"matchLabels": {"ray.io/cluster": "ours"}}}]}
    values = {
        "pools": {
            "decode": {
                "rayCluster": {**CLUSTER, **secret, **peers},
                "gpus": {"count": 1},
                "options": {"tensorParallelSize": 4},
            }
        }
    }
    release = rendered(values)
    assert not release.kind("LeaderWorkerSet") and "demo-decode" in release.kind("Deployment")
    engine = told(release, "demo-decode").engine
    assert (engine.rank_launcher, engine.ray_address) == ("ray", "ray-head:6379")
    assert engine.ray_listen is None and engine.tensor_parallel_size == 4
    command = container_of(release, "demo-decode")["command"][-1]
    assert "ray start --address=ray-head:6379" in command and "--num-gpus=1" in command
    assert command.endswith("&& exec splitserve decode-worker")
    assert f" --labels={WORKER_LABEL}={OWN} " in command, "another worker's ranks would take it"
    (token,) = (item for item in release.env("demo-decode") if item["name"] == "RAY_AUTH_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "ray", "key": "token"}
    first, *_ = release.kind("NetworkPolicy")["demo-workers"]["spec"]["ingress"]
    assert peers["peers"][0] in first["from"]


def test_a_ray_cluster_that_asks_nobody_for_a_token_is_joined_only_by_who_says_so() -> None:
    """Its users can read what a worker's pod has of the fleet."""
    cluster = {"address": "ray-head:6379", "insecure": True}
    release = rendered(
        {"pools": {"decode": {"rayCluster": cluster, "options": {"tensorParallelSize": 2}}}}
    )
    assert "RAY_AUTH_MODE" not in release.environ("demo-decode")


@pytest.mark.parametrize(
    ("decode", "said"),
    [
        ({"hosts": 0}, "hosts"),
        ({"hosts": 2}, "pools.decode.hosts: options.tensorParallelSize is 1"),
        ({"hosts": 3, "options": {"tensorParallelSize": 4}}, "left without a rank"),
        (
            {"hosts": 2, "rayCluster": CLUSTER, "options": {"tensorParallelSize": 2}},
            "leave one of them out",
        ),
        ({"rayCluster": CLUSTER}, "one rank needs no Ray"),
        ({"rayCluster": {"address": "http://ray"}}, "address"),
        (
            {"rayCluster": {"address": "ray:1"}, "options": {"tensorParallelSize": 2}},
            "pools.decode.rayCluster.secret.name: is empty",
        ),
        ({"rayCluster": {"adress": "ray:1"}}, "adress"),
        (
            {"hosts": 2, "gpus": {"count": 4}, "options": {"tensorParallelSize": 16}},
            "hosts (2) have gpus.count (4) each",
        ),
        (
            {"hosts": 2, "gpus": {"count": 8}, "options": {"tensorParallelSize": 8}},
            "pools.decode.gpus.count: hosts (2) have 8 each, and options.tensorParallelSize is 8",
        ),
        (
            {"hosts": 2, "gpus": {"count": 8}, "options": {"tensorParallelSize": 12}},
            "make it their product (16)",
        ),
        ({"options": {"rayListen": "10.0.0.1:1"}}, "rayListen"),
    ],
)
def test_groups_that_cannot_be_are_refused_by_the_key_that_asks_for_them(
    decode: dict[str, Any], said: str
) -> None:
    assert said in refusal({"pools": {"decode": decode}})


def test_a_group_whose_pods_would_have_no_names_is_told_to_shorten_its_own() -> None:
    pool = {"role": "decode", "hosts": 2, "options": {"tensorParallelSize": 2}}
    assert "more than 45 characters" in refusal(
        {"pools": {"d" * 40: pool}, "nameOverride": "release"}
    )


def test_ucx_and_nccl_of_every_host_take_the_same_gid_unless_a_pool_names_nccl_s_own() -> None:
    for pod in ("demo-decode", "demo-decode-1"):
        environ = rendered(GROUP).environ(pod)
        assert environ["UCX_IB_GID_INDEX"] == environ["NCCL_IB_GID_INDEX"] == "3"
    own: Manifest = {"env": [{"name": "NCCL_IB_GID_INDEX", "value": "1"}]}
    env = rendered({**GROUP, "worker": {**GROUP["worker"], **own}}).env("demo-decode-1")
    assert [each["value"] for each in env if each["name"] == "NCCL_IB_GID_INDEX"] == ["1"]
