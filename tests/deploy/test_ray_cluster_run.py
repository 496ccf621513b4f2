"""A worker that has one of its two ranks on a Ray cluster that was there before it, as KubeRay
makes one: a head behind a Service, with a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.chart import Manifest
from tests.deploy.release import CLAIM, VALUES, Release, model_cache
from tests.deploy.test_rank_groups_run import CAPITAL, answer
from tests.fleet.support import wait_for
from tests.mini_cluster.children import is_ready
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.machine import running_cluster

pytest.importorskip("ray", reason="an extra")
pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(900)]
HEAD = "raycluster-head"
SERVICE = f"{HEAD}-svc"
WITHIN_S = 120.0
LABELS = {"ray.io/cluster": "raycluster", "ray.io/node-type": "head"}
START = (
    'exec ray start --head --node-ip-address="$POD_IP" --port=6381 --include-dashboard=false'
    " --dashboard-agent-listen-port=52366 --num-cpus=0 --object-store-memory=83886080"
    """ --resources='{"splitserve_rank": 1}' --block"""
)
"""One place for a rank. Its port is not the Service's: it listens at all addresses of this host, of
which the Service has one."""


def head() -> list[Manifest]:
    """The cluster's token, its head, and the name by which the head is found."""
    token = {"secretKeyRef": {"name": "ray-token", "key": "token"}}
    environ = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SPLITSERVE_HOME", "value": "/var/cache/splitserve"},
        {"name": "HOME", "value": "/tmp"},
        {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
        {"name": "RAY_memory_monitor_refresh_ms", "value": "0"},
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": token},
    ]
    container = {
        "name": "head",
        "image": "localhost/splitserve/worker:0.1.0-cpu",
        "command": ["bash", "-c", START],
        "env": environ,
        "ports": [{"name": "gcs", "containerPort": 6381}],
        "readinessProbe": {"tcpSocket": {"port": "gcs"}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "cache", "mountPath": "/var/cache/splitserve"},
        ],
    }
    volumes: list[Manifest] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "cache", "persistentVolumeClaim": {"claimName": CLAIM}},
    ]
    ports = [{"name": "gcs", "port": 6379, "targetPort": "gcs"}]
    return [
        _object("Secret", "ray-token", stringData={"token": "a-token-of-the-ray-cluster-0123"}),
        _object("Service", SERVICE, spec={"selector": LABELS, "ports": ports}),
        _object("Pod", HEAD, spec={"containers": [container], "volumes": volumes}),
    ]


def _object(kind: str, name: str, **rest: Manifest) -> Manifest:
    metadata = {"name": name, "labels": LABELS}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MiniCluster]:
    """One with a Ray cluster of one node."""
    with running_cluster(tmp_path, model_cache()) as made:
        yield made


def start_ray(cluster: MiniCluster) -> None:
    """Returns when the head takes nodes."""
    for manifest in head():
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def is_there() -> bool:
        return is_ready(cluster.call(lambda: cluster.store.get("pods", "default", HEAD)))

    wait_for(is_there, timeout_s=WITHIN_S, what="the head of the Ray cluster")


async def test_a_pool_has_a_rank_on_a_ray_cluster_that_is_there_and_answers_as_one_does(
    cluster: MiniCluster,
) -> None:
    release = Release(cluster)
    release.claim()
    start_ray(cluster)
    joined: Manifest = {
        "options": {"tensorParallelSize": 2},
        "rayCluster": {"address": f"{SERVICE}:6379", "secret": {"name": "ray-token"}},
    }
    release.install(VALUES | {"pools": {"prefill": None, "decode": joined}})
    async with release.client() as client:
        assert await answer(client) == CAPITAL
    (pod,) = release.pods("decode-worker")
    log = cluster.kubectl("logs", pod)
    (placed,) = (line for line in log.splitlines() if "ranks have their places" in line)
    assert pod.removeprefix("pod/") in placed and HEAD in placed
