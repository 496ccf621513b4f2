"""The few calls to an API server that change a fleet, as plain objects: what JSON has.

The `kubernetes` package is imported when the first connection is opened: it is an extra.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from cluster.errors import ConfigError, WorkerLost
from cluster.scaling.groups import GroupSets, Object
from cluster.scaling.pool_kind import kind_of
from cluster.scaling.scaler import RefusalReason, ScaleRefused

TIMEOUT_S = 15.0
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
LOST_FIRST = "-2147483648"
"""The least that there is: all others are dearer."""


class DeploymentsApi(Protocol):
    """Of one namespace: its Deployments, and the sets of groups that take their place. Every call
    raises ScaleRefused where the server says no, and WorkerLost where it does not answer."""

    hidden: str
    """Why sets of groups were not listed, in the server's words; empty: they were."""

    async def pools(self, selector: str) -> Sequence[Object]:
        """Those with these labels, of both kinds."""

    async def replica_sets(self, selector: str) -> Sequence[Object]:
        """Those with these labels."""

    async def patch_scale(self, pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        """Of one that was listed; CHANGING where somebody has changed it since."""

    async def patch(self, pool: Object, operations: Sequence[Object]) -> None:
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
        self.hidden = ""

    @classmethod
    async def opened(cls, namespace: str) -> ApiServer:
        """Raises ConfigError where no cluster is configured."""
        from kubernetes.aio import client as api
        from kubernetes.aio import config

        try:
            with (
                warnings.catch_warnings()
            ):  # that there is no kubeconfig is as it should be in a pod
                warnings.simplefilter("ignore", UserWarning)
                await config.load_config()
        except (config.ConfigException, OSError) as cause:
            raise ConfigError(f"no Kubernetes cluster is configured: {cause}") from cause
        return cls(namespace, api.ApiClient())

    async def pools(self, selector: str) -> Sequence[Object]:
        """See DeploymentsApi."""
        deployments = await self._listed(self._apps.list_namespaced_deployment, selector)
        return [*deployments, *await self._groups(selector)]

    async def replica_sets(self, selector: str) -> Sequence[Object]:
        """See DeploymentsApi."""
        return await self._listed(self._apps.list_namespaced_replica_set, selector)

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

    async def patch(self, pool: Object, operations: Sequence[Object]) -> None:
        """See DeploymentsApi."""
        call, named = self._apps.patch_namespaced_deployment, kind_of(pool).plural
        if named:
            call = self._custom.patch_namespaced_custom_object
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
            return await self._listed(self._core.list_namespaced_pod, selector)
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
        from aiohttp import ClientError
        from kubernetes.aio.client.exceptions import ApiException

        try:
            return await call(namespace=self._namespace, _request_timeout=TIMEOUT_S, **arguments)
        except ApiException as refusal:
            raise refused(refusal.status, _message(refusal.body)) from refusal
        except (ClientError, OSError, TimeoutError) as cause:
            raise WorkerLost(f"the API server does not answer: {cause}") from cause


def refused(status: int | None, message: str) -> ScaleRefused | WorkerLost:
    """What an answer of the API server means here. Its words name the verb that is forbidden. 422
    is of a patch whose test has failed; a server that is not well has refused nothing."""
    if status is None or status >= 500:
        return WorkerLost(f"the API server is not well: {message}")
    if "exceeded quota" in message:
        return ScaleRefused(RefusalReason.QUOTA, message)
    reasons = {
        401: RefusalReason.FORBIDDEN,
        403: RefusalReason.FORBIDDEN,
        404: RefusalReason.NO_SUCH_POOL,
        409: RefusalReason.CHANGING,
        422: RefusalReason.CHANGING,
        429: RefusalReason.DISRUPTION,
    }
    return ScaleRefused(reasons.get(status, RefusalReason.OPTIONS), message)


def _message(body: str | None) -> str:
    try:
        return str(msgspec.json.decode(body or "")["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body or "the API server gives no reason"
