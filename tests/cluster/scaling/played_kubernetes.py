"""Deployments that an API server would have, played: patches take effect, pods do not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.errors import LoginLost, WorkerLost
from cluster.scaling.groups import Object
from cluster.scaling.kubernetes_api import DELETION_COST, DeploymentsApi
from cluster.scaling.room_api import RoomApi
from cluster.scaling.scaler import RefusalReason, ScaleRefused

_RELEASE = "app.kubernetes.io/name=splitserve,app.kubernetes.io/instance=chat"
LABELS = f"{_RELEASE},splitserve/pool"
ROUTER_LABELS = f"{_RELEASE},app.kubernetes.io/component=router"


class PlayedRoom(RoomApi):
    """What a test says that there is, and else GPUs for all. `forbidden`: the server's words, by
    what is listed."""

    def __init__(self) -> None:
        self.namespace = "default"
        self.limit_list: list[Object] = []
        self.quota_list: list[Object] = []
        self.budget_list: list[Object] = []
        self.node_list: list[Object] = [gpu_node("roomy", 1000)]
        self.pod_list: list[Object] = []
        self.forbidden: dict[str, str] = {}
        self.asked: list[str] = []

    async def limit_ranges(self) -> Sequence[Object]:
        return self._listed("limitranges", self.limit_list)

    async def quotas(self) -> Sequence[Object]:
        return self._listed("resourcequotas", self.quota_list)

    async def budgets(self) -> Sequence[Object]:
        return self._listed("poddisruptionbudgets", self.budget_list)

    async def nodes(self) -> Sequence[Object]:
        return self._listed("nodes", self.node_list)

    async def pods_on_nodes(self) -> Sequence[Object]:
        return self._listed("pods", self.pod_list)

    def _listed(self, what: str, found: list[Object]) -> Sequence[Object]:
        self.asked.append(what)
        if what in self.forbidden:
            raise ScaleRefused(RefusalReason.FORBIDDEN, self.forbidden[what])
        return found


class PlayedDeployments(DeploymentsApi):
    """`refuses_with` is raised by what would change something, `refuses_scale` by a scale alone.
    `goes_instead`: of `pods`, whatever the cost of others."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = {item["metadata"]["name"]: item for item in items}
        self.sets: list[Object] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.routers: list[Object] = []
        self.is_silent = False
        """Of the server: it answers nobody."""
        self.knows_who_asks = True
        self.patch_is_unheard = False
        """A change takes effect, and the answer is lost."""
        self.hides_pods = False
        self.goes_instead = ""
        self.patches: list[tuple[str, Sequence[Object]]] = []
        self.refuses_with: ScaleRefused | None = None
        self.refuses_scale: ScaleRefused | None = None
        self.hidden = ""
        self.room = PlayedRoom()

    async def pools(self, selector: str) -> Sequence[Object]:
        self._answer()
        if selector == ROUTER_LABELS:
            return self.routers
        assert selector == LABELS
        return list(self.items.values())

    async def pods_with(self, selector: str) -> Sequence[Object]:
        self._answer()
        assert selector == LABELS
        return list(self.pods.values())

    async def replica_sets(self, selector: str) -> Sequence[Object]:
        assert selector == LABELS
        return self.sets

    async def patch_scale(self, pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        self._check()
        if self.refuses_scale is not None and not is_dry_run:
            raise self.refuses_scale
        name = pool["metadata"]["name"]
        if not is_dry_run:
            is_less = replicas < self.items[name]["spec"]["replicas"]
            self.items[name]["spec"]["replicas"] = replicas
            self.items[name]["metadata"]["generation"] += 1
            if is_less and self.pods:
                self._lose_one(name)
            self._lose_answer()

    async def worker_pods(self, selector: str) -> Sequence[Object] | None:
        assert selector == LABELS
        return None if self.hides_pods else list(self.pods.values())

    async def pod(self, name: str) -> Object | None:
        self._answer()
        return self.pods.get(name)

    async def set_deletion_cost(self, pod: str, cost: str | None, *, is_dry_run: bool) -> None:
        self._check()
        if not is_dry_run and cost is None:
            self.pods[pod]["metadata"]["annotations"].pop(DELETION_COST, None)
        elif not is_dry_run:
            self.pods[pod]["metadata"]["annotations"][DELETION_COST] = cost

    def costs(self) -> dict[str, str]:
        """Of the pods that have one."""
        found = {
            name: pod["metadata"]["annotations"].get(DELETION_COST)
            for name, pod in self.pods.items()
        }
        return {name: cost for name, cost in found.items() if cost is not None}

    def _lose_one(self, deployment: str) -> None:
        """It drains for long; its Deployment no longer counts it."""
        costs = {name: int(self.costs().get(name, 0)) for name in self.pods}
        own = [name for name in self.pods if name.rsplit("-", 2)[0] == deployment]
        if own:
            going = self.goes_instead or min(own, key=costs.__getitem__)
            self.pods[going]["metadata"]["deletionTimestamp"] = "2026-11-23T12:00:00Z"
        self.get_ready()

    async def patch(self, pool: Object, operations: Sequence[Object], *, is_dry_run: bool) -> None:
        self._check()
        if not is_dry_run:
            self.patches.append((pool["metadata"]["name"], operations))
            self._lose_answer()

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

    def _answer(self) -> None:
        if self.is_silent:
            raise WorkerLost("the API server does not answer: it is played")
        if not self.knows_who_asks:
            raise LoginLost("the API server does not know who asks: it is played")

    def _lose_answer(self) -> None:
        if self.patch_is_unheard:
            raise WorkerLost("the API server does not answer: it is played")

    def _check(self) -> None:
        self._answer()
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
            "selector": {"matchLabels": {"splitserve/pool": pool}},
            "template": {
                "metadata": {"labels": {"splitserve/pool": pool}},
                "spec": {"containers": [{"resources": {"limits": limits}}]},
            },
        },
    }


def gpu_node(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """With labels and taints in `spec`."""
    labels = spec.pop("labels", {})
    status = {"allocatable": {"cpu": "64", "nvidia.com/gpu": str(gpus)}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod_on(node: str, gpus: int, *, pool: str = "", namespace: str = "default") -> dict[str, Any]:
    """A pod that has its place; of a pool of the release, or anybody's."""
    limits = {"nvidia.com/gpu": str(gpus)}
    labels = {"splitserve/pool": pool} if pool else {}
    return {
        "metadata": {"name": "some", "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
    }


def quota(name: str, hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def limit_range(name: str, *items: dict[str, Any]) -> dict[str, Any]:
    """Of containers, where an item does not say of what it is."""
    limits = [{"type": "Container", **item} for item in items]
    return {"metadata": {"name": name}, "spec": {"limits": limits}}


def budget(name: str, pool: str, **spec: Any) -> dict[str, Any]:
    """Without a status: its controller has not looked yet."""
    selector = {"matchLabels": {"splitserve/pool": pool}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}


def pods_of(pool: str, *suffixes: str) -> dict[str, dict[str, Any]]:
    """By name, of one template."""
    names = [f"chat-{pool}-7d9f-{suffix}" for suffix in suffixes]
    labels = {"splitserve/pool": pool}
    return {
        name: {"metadata": {"name": name, "labels": dict(labels), "annotations": {}}}
        for name in names
    }


def loaded_pod(
    pool: str, suffix: str, *, is_ready: bool = False, is_started: bool = True
) -> dict[str, dict[str, Any]]:
    """Of one name; its startup probe was answered."""
    (made,) = pods_of(pool, suffix).values()
    status = {"containerStatuses": [{"started": is_started, "ready": is_ready}]}
    return {made["metadata"]["name"]: made | {"status": status}}


def group_set(pool: str, replicas: int, *, size: int, gpus: int) -> dict[str, Any]:
    """As a list of custom resources has it: with its kind."""
    limits = {"nvidia.com/gpu": str(gpus)}
    labels = {"splitserve/pool": pool}
    spec = {"containers": [{"resources": {"limits": limits}}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
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
