"""What an API server says of the room that a cluster has: limits, quotas, budgets, nodes, pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cluster.scaling.groups import Object
from cluster.scaling.kubernetes_call import read_plain
from cluster.scaling.scaler import RefusalReason, ScaleRefused

PAGE_ITEMS = 500
MAX_ITEMS = 20_000
"""Of a list: reading it is as much work for the server as for us."""
_ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class RoomApi(Protocol):
    """Each call raises ScaleRefused where the server says no, and WorkerLost where it does not
    answer."""

    namespace: str

    async def limit_ranges(self) -> Sequence[Object]:
        """Of the namespace."""

    async def quotas(self) -> Sequence[Object]:
        """Of the namespace."""

    async def budgets(self) -> Sequence[Object]:
        """Disruption budgets of the namespace."""

    async def nodes(self) -> Sequence[Object]:
        """Of the cluster."""

    async def pods_on_nodes(self) -> Sequence[Object]:
        """Of all namespaces, those that run or are about to."""


class ServerRoom(RoomApi):
    """Of one server, by the connection of whoever made it."""

    def __init__(self, namespace: str, client: Any) -> None:
        from kubernetes.aio import client as api

        self.namespace = namespace
        self._core = api.CoreV1Api(client)
        self._policy = api.PolicyV1Api(client)

    async def limit_ranges(self) -> Sequence[Object]:
        """See RoomApi."""
        call = self._core.list_namespaced_limit_range_without_preload_content
        return await _all(call, namespace=self.namespace)

    async def quotas(self) -> Sequence[Object]:
        """See RoomApi."""
        call = self._core.list_namespaced_resource_quota_without_preload_content
        return await _all(call, namespace=self.namespace)

    async def budgets(self) -> Sequence[Object]:
        """See RoomApi."""
        call = self._policy.list_namespaced_pod_disruption_budget_without_preload_content
        return await _all(call, namespace=self.namespace)

    async def nodes(self) -> Sequence[Object]:
        """See RoomApi."""
        return await _all(self._core.list_node_without_preload_content)

    async def pods_on_nodes(self) -> Sequence[Object]:
        """See RoomApi."""
        call = self._core.list_pod_for_all_namespaces_without_preload_content
        return await _all(call, field_selector=_ON_NODES)


async def _all(call: Any, **arguments: Any) -> Sequence[Object]:
    """Page by page. Raises ScaleRefused as well where there are too many."""
    found: list[Object] = []
    while True:
        page = await read_plain(call, limit=PAGE_ITEMS, **arguments)
        found += page.get("items") or ()
        more = (page.get("metadata") or {}).get("continue")
        if not more:
            return found
        if len(found) >= MAX_ITEMS:
            reason = RefusalReason.OPTIONS
            raise ScaleRefused(reason, f"there are more than {MAX_ITEMS}, too many to read")
        arguments["_continue"] = more
