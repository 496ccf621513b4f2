"""The chart as an operator installs it, on a cluster that runs it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.deploy.release import CLAIM, NAME, VALUES, Release, model_cache
from tests.fleet.support import wait_for
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.machine import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_GONE_WITHIN_S = 120.0


async def first_token(release: Release) -> None:
    async with release.client() as client:
        question = {"model": "smollm2", "prompt": "Once", "max_tokens": 1}
        answer = await client.post("/v1/completions", json=question)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 1


def uninstall(cluster: MiniCluster, before: set[str]) -> None:
    """Nothing is left but what the test had made: no object, no process."""
    cluster.helm("uninstall", NAME)
    kept = before | {f"PersistentVolumeClaim {CLAIM}"}
    wait_for(
        lambda: everything(cluster) <= kept, timeout_s=_GONE_WITHIN_S, what="the end of all pods"
    )
    assert containers() == []


async def test_helm_installs_a_pool_a_token_comes_through_the_service_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path, model_cache()) as cluster:
        before = everything(cluster)
        release = Release(cluster)
        release.install(VALUES | {"pools": {"prefill": None}})
        await first_token(release)
        uninstall(cluster, before)


@pytest.mark.minutes
async def test_helm_installs_both_pools_and_its_test_asks_them_from_inside(tmp_path: Path) -> None:
    with running_cluster(tmp_path, model_cache()) as cluster:
        before = everything(cluster)
        release = Release(cluster)
        release.install()
        await first_token(release)
        assert "Phase:          Succeeded" in cluster.helm("test", NAME)
        uninstall(cluster, before)


def everything(cluster: MiniCluster) -> set[str]:
    """Kind and name of all that lies in the namespace."""
    store, resources = cluster.store, cluster.server.api.resources.all()
    return {
        f"{resource.kind} {found['metadata']['name']}"
        for resource in resources
        if resource.is_namespaced
        for found in cluster.call(lambda name=resource.name: store.select(name, "default"))
    }


def containers() -> list[psutil.Process]:
    """Processes of this one's pods."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if any("container_init.py" in word for word in child.cmdline())
    ]
