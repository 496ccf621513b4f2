"""The few calls to an API server that change a fleet, as plain objects: what JSON has.

The `kubernetes` package is imported when the first connection is opened: it is an extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from cluster.scaling.groups import GroupSets, Object
from cluster.scaling.kubernetes_call import called
from cluster.scaling.kubernetes_login import opened_client
from cluster.scaling.pool_kind import kind_of
from cluster.scaling.room_api import RoomApi, ServerRoom
from cluster.scaling.scaler import RefusalReason, ScaleRefused

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
LOST_FIRST = "-2147483648"
"""The least that there is: all others are dearer."""


class DeploymentsApi(Protocol):
    """Of one namespace: its Deployments, and the sets of groups that take their place. Every call
    raises ScaleRefused where the server says no, and WorkerLost where it does not answer."""

    room: RoomApi
    """What there is for more pods, by the same connection."""
    hidden: str
    """Why sets of groups were not listed, in the server's words; empty: they were."""

    async def pools(self, selector: str) -> Sequence[Object]:
        """Those with these labels, of both kinds."""

    async def replica_sets(self, selector: str) -> Sequence[Object]:
        """Those with these labels."""

    async def pods_with(self, selector: str) -> Sequence[Object]:
        """Those with these labels."""

    async def patch_scale(self, pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        """Of one that was listed; CHANGING where somebody has changed it since."""

    async def patch(self, pool: Object, operations: Sequence[Object], *, is_dry_run: bool) -> None:
        """One that was listed, by a JSON patch: all of it or nothing."""

    async def worker_pods(self, selector: str) -> Sequence[Object] | None:
        """Those with these labels; None for who may not look at pods."""

    async def pod(self, name: str) -> Object | None:
        """None where there is none of that name."""

    async def set_deletion_cost(self, pod: str, cost: str | None, *, is_dry_run: bool) -> None:
        """Of a ReplicaSet's pods that are all ready, the cheapest goes first. None: as others."""

    async def close(self) -> None:
        """Idempotent."""


class ApiServer(DeploymentsApi):
    """The server that the caller's kubeconfig names, or the one of the cluster that we are in."""

    def __init__(self, namespace: str, client: Any) -> None:
        """See `opened`."""
        self._namespace = namespace
        self._client = client
        from kubernetes.aio import client as api

        self._apps = api.AppsV1Api(client)
        self._custom = api.CustomObjectsApi(client)
        self._core = api.CoreV1Api(client)
        self.room = ServerRoom(namespace, client)
        self.hidden = ""

    @classmethod
    async def opened(cls, namespace: str) -> ApiServer:
        """Empty: the namespace of the kubeconfig's context, or of the pod that we are. Raises
        ConfigError where no cluster is configured."""
        client = await opened_client()
        return cls(namespace or _own_namespace(), client)

    async def pools(self, selector: str) -> Sequence[Object]:
        """See DeploymentsApi."""
        deployments = await self._listed(self._apps.list_namespaced_deployment, selector)
        return [*deployments, *await self._groups(selector)]

    async def replica_sets(self, selector: str) -> Sequence[Object]:
        """See DeploymentsApi."""
        return await self._listed(self._apps.list_namespaced_replica_set, selector)

    async def pods_with(self, selector: str) -> Sequence[Object]:
        """See DeploymentsApi."""
        return await self._listed(self._core.list_namespaced_pod, selector)

    async def patch_scale(self, pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        """See DeploymentsApi."""
        call, named = self._apps.patch_namespaced_deployment_scale, dict(kind_of(pool).plural)
        if named:
            call = self._custom.patch_namespaced_custom_object_scale
            named["_content_type"] = "application/merge-patch+json"
        if is_dry_run:
            named["dry_run"] = "All"
        version = pool["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        await self._called(call, name=pool["metadata"]["name"], body=body, **named)

    async def patch(self, pool: Object, operations: Sequence[Object], *, is_dry_run: bool) -> None:
        """See DeploymentsApi."""
        call, named = self._apps.patch_namespaced_deployment, dict(kind_of(pool).plural)
        if named:
            call = self._custom.patch_namespaced_custom_object
        if is_dry_run:
            named["dry_run"] = "All"
        body = [dict(operation) for operation in operations]
        await self._called(
            call,
            name=pool["metadata"]["name"],
            body=body,
            _content_type="application/json-patch+json",
            **named,
        )

    async def worker_pods(self, selector: str) -> Sequence[Object] | None:
        """See DeploymentsApi."""
        try:
            return await self.pods_with(selector)
        except ScaleRefused as refusal:
            if refusal.reason is RefusalReason.FORBIDDEN:
                return None
            raise

    async def pod(self, name: str) -> Object | None:
        """See DeploymentsApi."""
        try:
            found = await self._called(self._core.read_namespaced_pod, name=name)
        except ScaleRefused as refusal:
            if refusal.reason is RefusalReason.NO_SUCH_POOL:
                return None
            raise
        pod: Object = self._client.sanitize_for_serialization(found)
        return pod

    async def events(self) -> Sequence[Object]:
        """Of everything in the namespace."""
        return await self._listed(self._core.list_namespaced_event, "")

    async def log(self, pod: str, container: str, *, previous: bool, num_lines: int) -> str:
        """A container's last lines; `previous`: of its run before."""
        call = self._core.read_namespaced_pod_log
        lines = {"previous": previous, "tail_lines": num_lines}
        return str(await self._called(call, name=pod, container=container, **lines))

    async def set_deletion_cost(self, pod: str, cost: str | None, *, is_dry_run: bool) -> None:
        """See DeploymentsApi."""
        dry_run = {"dry_run": "All"} if is_dry_run else {}
        body = {"metadata": {"annotations": {DELETION_COST: cost}}}
        await self._called(self._core.patch_namespaced_pod, name=pod, body=body, **dry_run)

    async def close(self) -> None:
        """See DeploymentsApi."""
        await self._client.close()

    async def _groups(self, selector: str) -> Sequence[Object]:
        """None where the cluster has no such kind. Who may not look is asked later whether that
        matters: most releases have none."""
        call = self._custom.list_namespaced_custom_object
        try:
            found = await self._called(call, label_selector=selector, **GroupSets.plural)
        except ScaleRefused as refusal:
            if refusal.reason is RefusalReason.FORBIDDEN:
                self.hidden = refusal.message
            elif refusal.reason is not RefusalReason.NO_SUCH_POOL:
                raise
            return []
        return list(found["items"])

    async def _listed(self, call: Any, selector: str) -> Sequence[Object]:
        found = await self._called(call, label_selector=selector)
        return [self._client.sanitize_for_serialization(item) for item in found.items]

    async def _called(self, call: Any, **arguments: Any) -> Any:
        return await called(call, namespace=self._namespace, **arguments)


def _own_namespace() -> str:
    from kubernetes.aio import config

    try:
        _, active = config.list_kube_config_contexts()
        named = active["context"].get("namespace")
    except (config.ConfigException, OSError):  # none: we are in a pod
        named = OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else None
    return named or "default"
