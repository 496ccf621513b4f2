"""Deployments that an API server would have, played: patches take effect, pods do not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.scaling.groups import Object
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.scaling.scaler import ScaleRefused

LABELS = "app.kubernetes.io/name=splitserve,app.kubernetes.io/instance=chat,splitserve/pool"


class PlayedDeployments(DeploymentsApi):
    """`refuses_with` is raised by what would change something."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = {item["metadata"]["name"]: item for item in items}
        self.sets: list[Object] = []
        self.lost_first: list[str] = []
        self.patches: list[tuple[str, Sequence[Object]]] = []
        self.refuses_with: ScaleRefused | None = None
        self.hidden = ""

    async def pools(self, selector: str) -> Sequence[Object]:
        assert selector == LABELS
        return list(self.items.values())

    async def replica_sets(self, selector: str) -> Sequence[Object]:
        assert selector == LABELS
        return self.sets

    async def patch_scale(self, pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        self._check()
        name = pool["metadata"]["name"]
        if not is_dry_run:
            self.items[name]["spec"]["replicas"] = replicas
            self.items[name]["metadata"]["generation"] += 1

    async def lose_first(self, pod: str, *, is_dry_run: bool) -> None:
        self._check()
        if not is_dry_run:
            self.lost_first.append(pod)

    async def patch(self, pool: Object, operations: Sequence[Object]) -> None:
        self._check()
        self.patches.append((pool["metadata"]["name"], operations))

    async def close(self) -> None:
        """Nothing was open."""

    def get_ready(self) -> None:
        """Every pod that is wanted runs, of the newest template."""
        for item in self.items.values():
            wanted = item["spec"]["replicas"]
            item["status"] = {
                "replicas": wanted,
                "readyReplicas": wanted,
                "updatedReplicas": wanted,
                "observedGeneration": item["metadata"]["generation"],
            }

    def _check(self) -> None:
        if self.refuses_with is not None:
            raise self.refuses_with


def deployment(pool: str, replicas: int, *, gpus: int = 0, revision: int = 1) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {
            "name": f"chat-{pool}",
            "uid": f"uid-{pool}",
            "resourceVersion": "41",
            "generation": 1,
            "labels": {"splitserve/pool": pool},
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
        },
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"containers": [{"resources": {"limits": limits}}]}},
        },
    }


def group_set(pool: str, replicas: int, *, size: int, gpus: int) -> dict[str, Any]:
    """As a list of custom resources has it: with its kind."""
    limits = {"nvidia.com/gpu": str(gpus)}
    template = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    made = deployment(pool, replicas)
    rolling = {"maxUnavailable": 1, "maxSurge": 0}
    made["spec"] = {
        "replicas": replicas,
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling},
        "leaderWorkerTemplate": {
            "size": size,
            "leaderTemplate": template,
            "workerTemplate": template,
        },
    }
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", **made}


def replica_set(pool: str, revision: int, image: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"chat-{pool}-{revision}",
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [{"uid": f"uid-{pool}"}],
        },
        "spec": {
            "template": {
                "metadata": {"labels": {"splitserve/pool": pool, "pod-template-hash": "x"}},
                "spec": {"containers": [{"image": image}]},
            }
        },
    }
