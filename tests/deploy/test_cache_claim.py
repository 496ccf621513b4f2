"""The claim with the models, from one choice of values to another, as real helm does it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.deploy.chart import CHART, Manifest
from tests.mini_cluster.cluster import mini_cluster
from tests.mini_cluster.controllers import ALL, settle

_NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
_HELM = ("demo", str(CHART), "--wait=hookOnly", "--no-hooks")


def chosen(*words: str) -> tuple[str, str]:
    """Flags for helm: the claim, created, and what is said of it."""
    said = ("claim=models", "create=true", *words)
    return "--set", ",".join(f"model.cache.{word}" for word in said)


def claim(owner: str | None) -> Manifest:
    """As a hook leaves it, or a release."""
    names = {"meta.helm.sh/release-name": owner, "meta.helm.sh/release-namespace": "default"}
    metadata: Manifest = {"name": "models", "namespace": "default"}
    metadata["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "20Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata | ({"annotations": names} if owner else {}),
        "spec": spec,
    }


def test_a_claim_that_a_warm_up_made_is_read_on_without_one(tmp_path: Path) -> None:
    with mini_cluster(tmp_path) as cluster:
        cluster.call(lambda: cluster.store.create("persistentvolumeclaims", claim(None)))
        cluster.helm("install", *_HELM, *chosen("warmUp=true"))
        cluster.call(lambda: settle(cluster.store, ALL, _NOON))
        cluster.helm("upgrade", *_HELM, *chosen("readOnly=true"))
        cluster.helm("upgrade", *_HELM, *chosen("warmUp=true"))


def test_a_release_s_own_claim_stays_with_a_warm_up_and_without(tmp_path: Path) -> None:
    with mini_cluster(tmp_path) as cluster:
        cluster.helm("install", *_HELM, *chosen())
        for words in (("warmUp=true",), (), ("readOnly=true",)):
            cluster.helm("upgrade", *_HELM, *chosen(*words))
            found = cluster.call(
                lambda: cluster.store.get("persistentvolumeclaims", "default", "models")
            )
            assert found["metadata"]["annotations"]["meta.helm.sh/release-name"] == "demo"


def test_a_claim_of_another_release_is_used_and_not_taken(tmp_path: Path) -> None:
    with mini_cluster(tmp_path) as cluster:
        cluster.call(lambda: cluster.store.create("persistentvolumeclaims", claim("other")))
        cluster.helm("install", *_HELM, *chosen())
        found = cluster.call(
            lambda: cluster.store.get("persistentvolumeclaims", "default", "models")
        )
        assert found["metadata"]["annotations"]["meta.helm.sh/release-name"] == "other"
