"""A pod that is named, through the real client, by one who may do just what docs/kubernetes.md says
that `flip` needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.scaling.kubernetes import KubernetesScaler, pool_of, selector_of
from cluster.scaling.kubernetes_api import DELETION_COST, ApiServer
from cluster.scaling.scaler import RefusalReason, ScaleOrder, ScaleRefused
from tests.cli.test_scale_on_kubernetes import RBAC, Release
from tests.mini_cluster.children import is_going
from tests.mini_cluster.cluster import MiniCluster, mini_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = pytest.mark.long
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}
POOLS = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]}
SCALES = {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T12:00:00Z"}]


class Ready(Release):
    """Two prefill workers, ready."""

    def __init__(self, cluster: MiniCluster, home: Path) -> None:
        super().__init__(cluster, home)
        self._cluster.call(self._grow)
        self.settle()
        self._cluster.call(self._run)
        self.settle()

    def _grow(self) -> None:
        def to_two(draft: dict[str, Any]) -> None:
            draft["spec"]["replicas"] = 2

        self._cluster.store.edit("deployments.apps", "default", "chat-prefill", to_two)

    def _run(self) -> None:
        def bind(draft: dict[str, Any]) -> None:
            draft["spec"]["nodeName"] = "here"

        store = self._cluster.store
        for pod in store.select("pods", "default"):
            name = pod["metadata"]["name"]
            store.edit("pods", "default", name, bind)
            store.set_status("pods", "default", name, {"phase": "Running", "conditions": READY})

    def pods(self) -> list[Any]:
        found = self._cluster.call(lambda: self._cluster.store.select("pods", "default"))
        return [pod for pod in found if pod["metadata"]["name"].startswith("chat-prefill-")]

    def user(self, *rules: dict[str, Any]) -> Path:
        """The kubeconfig of one who may do this, and no more."""
        metadata = {"name": "flipper", "namespace": "default"}
        subject = {"kind": "ServiceAccount", **metadata}
        role = {"apiGroup": RBAC, "kind": "Role", "name": "flipper"}
        self._create("serviceaccounts", {"metadata": metadata})
        self._create(f"roles.{RBAC}", {"metadata": metadata, "rules": list(rules)})
        binding = {"metadata": metadata, "subjects": [subject], "roleRef": role}
        self._create(f"rolebindings.{RBAC}", binding)
        access = self._cluster.server.api.access
        token = self._cluster.call(lambda: access.token_of("default", "flipper"))
        return self._cluster.server.kubeconfig(token)


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Ready]:
    with mini_cluster(tmp_path) as cluster:
        yield Ready(cluster, tmp_path)


async def scale(release: Ready, kubeconfig: Path, pod: str) -> None:
    from kubernetes.aio import config

    async def settled(seconds: float) -> None:
        release.settle()

    client = await config.new_client_from_config(config_file=str(kubeconfig))
    api = ApiServer("default", client)
    try:
        order = ScaleOrder(pool="prefill", size=1, leaving=(pod,))
        await KubernetesScaler(api, "chat", settled).scale(order)
    finally:
        await api.close()


@pytest.mark.parametrize("place", [0, 1])
async def test_the_named_one_of_two_goes(release: Ready, place: int) -> None:
    named = sorted(pod["metadata"]["name"] for pod in release.pods())[place]
    await scale(release, release.user(PODS, POOLS, SCALES), named)
    going = [pod["metadata"]["name"] for pod in release.pods() if is_going(pod)]
    assert going == [named]


async def test_who_may_not_scale_leaves_no_cost_on_the_pod(release: Ready) -> None:
    named = release.pods()[0]["metadata"]["name"]
    with pytest.raises(ScaleRefused, match="deployments/scale") as refusal:
        await scale(release, release.user(PODS, POOLS), named)
    assert refusal.value.reason is RefusalReason.FORBIDDEN
    annotations = [pod["metadata"].get("annotations") or {} for pod in release.pods()]
    assert all(DELETION_COST not in each for each in annotations)


async def test_who_may_not_patch_pods_is_told_so_before_anything_is_scaled(release: Ready) -> None:
    named = release.pods()[0]["metadata"]["name"]
    with pytest.raises(ScaleRefused, match="cannot patch"):
        await scale(release, release.user(PODS | {"verbs": ["get"]}, POOLS, SCALES), named)
    assert release.spec("prefill")["replicas"] == 2


async def test_a_pool_that_was_changed_since_it_was_listed_is_not_scaled(release: Ready) -> None:
    from kubernetes.aio import config

    kubeconfig = release.user(POOLS, SCALES)
    client = await config.new_client_from_config(config_file=str(kubeconfig))
    api = ApiServer("default", client)
    try:
        pools = {pool_of(each): each for each in await api.pools(selector_of("chat"))}
        await api.patch_scale(pools["prefill"], 5, is_dry_run=False)
        with pytest.raises(ScaleRefused) as refusal:
            await api.patch_scale(pools["prefill"], 1, is_dry_run=False)
    finally:
        await api.close()
    assert refusal.value.reason is RefusalReason.CHANGING
    assert release.spec("prefill")["replicas"] == 5
