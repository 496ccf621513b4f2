"""The chart as an operator installs it, on a cluster that runs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from cluster.home import default_home
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
async def test_a_job_readies_the_model_and_workers_serve_it_from_a_cache_that_they_cannot_write_to(
    tmp_path: Path,
) -> None:
    """The job alone can have left the digest of the file that it looked through."""
    home = tmp_path / "home"
    model = home / "models" / "smollm2"
    model.mkdir(parents=True)
    for path in (default_home() / "models" / "smollm2").iterdir():
        shutil.copy(path, model)
    with running_cluster(tmp_path, {CLAIM: home}) as cluster:
        release = Release(cluster)
        values = VALUES["model"]["cache"] | {"warmUp": True}
        release.install(
            VALUES | {"model": VALUES["model"] | {"cache": values}, "pools": {"prefill": None}}
        )
        await first_token(release)
        assert list((home / "models" / "digests").iterdir())
        assert not (home / "kernels").exists(), "of the claim workers see the models alone"


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
    """Kind and name of all that lies in the namespace, or in none."""
    store, resources = cluster.store, cluster.server.api.resources.all()
    return {
        f"{resource.kind} {found['metadata']['name']}"
        for resource in resources
        for found in cluster.call(lambda name=resource.name: store.select(name))
        if found["metadata"].get("namespace", "default") == "default"
    }


def containers() -> list[psutil.Process]:
    """Processes of this one's pods."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if any("container_init.py" in word for word in child.cmdline())
    ]
