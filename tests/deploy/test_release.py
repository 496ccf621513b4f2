"""The chart as an operator installs it, on a cluster that runs it."""

from __future__ import annotations

import json
import shutil
import ssl
from base64 import b64encode
from pathlib import Path

import httpx
import psutil
import pytest

from cluster.home import default_home
from cluster.tls.fleet import FLEET_NAME
from tests.cluster.tls.authority import Authority
from tests.deploy.chart import Manifest
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


@pytest.mark.minutes
async def test_a_release_speaks_tls_to_clients_and_among_its_own_and_its_test_knows_it(
    tmp_path: Path,
) -> None:
    authority = Authority()
    with running_cluster(tmp_path, model_cache()) as cluster:
        for name, host in (("of-the-fleet", FLEET_NAME), ("of-the-door", NAME)):
            keep(cluster, name, authority.fill(tmp_path / "certificates" / name, host))
        before = everything(cluster)
        release = Release(cluster)
        door: Manifest = {"secret": "of-the-door", "hasCa": True}
        release.install(VALUES | {"fleet": {"tls": {"secret": "of-the-fleet"}}, "tls": door})
        address = release.get("services", NAME)["spec"]["clusterIP"]
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{address}:8000/v1/models", trust_env=False)
        trust = ssl.create_default_context(
            cafile=str(tmp_path / "certificates" / "of-the-door" / "ca.pem")
        )
        with httpx.Client(verify=trust, timeout=120, trust_env=False) as client:
            answer = client.post(
                f"https://{address}:8000/v1/completions",
                json={"model": "smollm2", "prompt": "Once", "max_tokens": 1},
                headers={"Authorization": f"Bearer {release.api_key()}"},
                extensions={"sni_hostname": NAME},
            )
        assert answer.status_code == 200, answer.text
        assert release.members_at_routers() == [{"decode": 1, "prefill": 1}]
        assert "Phase:          Succeeded" in cluster.helm("test", NAME)
        uninstall(cluster, before)


def keep(cluster: MiniCluster, name: str, folder: Path) -> None:
    """As a secret of the kind that cert-manager makes."""
    files = {"tls.crt": "cert.pem", "tls.key": "key.pem", "ca.crt": "ca.pem"}
    data = {key: b64encode((folder / file).read_bytes()).decode() for key, file in files.items()}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    made |= {"type": "kubernetes.io/tls", "data": data}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(made))


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
