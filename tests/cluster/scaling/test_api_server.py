"""The API server that a kubeconfig names: whose namespace, and what its silence ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.config import kube_config

from cluster.deadline import Deadline
from cluster.errors import WorkerLost
from cluster.scaling import kubernetes_api
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_api import ApiServer
from cluster.scaling.scaler import ScaleOrder, wait_until_ready
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment
from tests.virtual_time import VirtualTime


def kubeconfig(path: Path, namespace: str | None) -> str:
    context = {"cluster": "here", "user": "me"} | ({"namespace": namespace} if namespace else {})
    cluster = {"server": "http://127.0.0.1:1"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "now",
        "contexts": [{"name": "now", "context": context}],
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize(
    ("said", "of_context", "found"),
    [("", "chat", "chat"), ("", None, "default"), ("other", "chat", "other")],
)
async def test_a_namespace_that_is_not_said_is_the_contexts(
    said: str,
    of_context: str | None,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = kubeconfig(tmp_path / "config", of_context)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", place)
    monkeypatch.setattr("kubernetes.aio.config.KUBE_CONFIG_DEFAULT_LOCATION", place)
    api = await ApiServer.opened(said)
    assert api._namespace == found
    await api.close()


def test_in_a_pod_it_is_the_pods_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    own = tmp_path / "namespace"
    own.write_text("chat\n")
    monkeypatch.setattr(kubernetes_api, "OWN_NAMESPACE", own)
    assert kubernetes_api._own_namespace() == "chat"


async def test_a_server_that_is_silent_for_a_while_does_not_end_a_wait() -> None:
    api, time = PlayedDeployments(deployment("decode", 3)), VirtualTime()
    scaler = KubernetesScaler(api, "chat")
    await scaler.scale(ScaleOrder(pool="decode", size=5))
    waiting = asyncio.create_task(
        wait_until_ready(scaler, {"decode": 5}, Deadline.after(60, time), time.sleep)
    )
    await time.advance(3.0)
    api.is_silent = True
    await time.advance(20.0)
    assert not waiting.done()
    api.is_silent = False
    api.get_ready()
    await time.advance(5.0)
    await waiting


async def test_one_that_stays_silent_ends_it_when_its_time_is_over() -> None:
    api, time = PlayedDeployments(deployment("decode", 3)), VirtualTime()
    scaler = KubernetesScaler(api, "chat")
    await scaler.scale(ScaleOrder(pool="decode", size=5))
    api.is_silent = True
    waiting = asyncio.create_task(
        wait_until_ready(scaler, {"decode": 5}, Deadline.after(60, time), time.sleep)
    )
    await time.advance(59.0)
    assert not waiting.done()
    await time.advance(5.0)
    with pytest.raises(WorkerLost):
        await waiting
