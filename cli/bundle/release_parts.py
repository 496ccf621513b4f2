"""What a bundle has of a release on Kubernetes: its pools, its pods and why they are where they
are, and what each container has written, now and before it was started again.

By the caller's own kubeconfig, which may show less: what it may not read is missing, and said so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from cli.bundle.parts import BundlePart
from cluster.scaling.groups import Object
from cluster.scaling.kubernetes_api import ApiServer

LOG_LINES = 5000
"""Of each container, its last."""
MAX_PODS = 64
"""Whose logs are taken: first those that are not ready."""
RELEASE_LABEL = "app.kubernetes.io/instance"


class ReleaseReads(Protocol):
    """Of one namespace, as plain objects. Raises ScaleRefused where the server says no, and
    WorkerLost where it does not answer."""

    async def pools(self, selector: str) -> Sequence[Object]:
        """Deployments and sets of groups with these labels."""

    async def pods_with(self, selector: str) -> Sequence[Object]:
        """Those with these labels."""

    async def events(self) -> Sequence[Object]:
        """Of everything."""

    async def log(self, pod: str, container: str, *, previous: bool, num_lines: int) -> str:
        """Its last lines."""

    async def close(self) -> None:
        """Idempotent."""


@asynccontextmanager
async def opened(named: str) -> AsyncIterator[tuple[ReleaseReads, str]]:
    """The namespace of NAMESPACE/RELEASE, and the release. Raises ConfigError without a cluster."""
    namespace, _, release = named.rpartition("/")
    api = await ApiServer.opened(namespace)
    try:
        yield api, release
    finally:
        await api.close()


async def release_parts(reads: ReleaseReads, release: str) -> list[BundlePart]:
    """Pools, pods and events, and a part for each log. Raises where pods cannot be listed."""
    selector = f"{RELEASE_LABEL}={release}"
    pods = sorted(await reads.pods_with(selector), key=_is_ready)
    names = [pod["metadata"]["name"] for pod in pods]

    async def told(what: object) -> object:
        return what

    async def pools() -> object:
        return list(await reads.pools(selector))

    async def events() -> object:
        return [each for each in await reads.events() if _is_about(each, release)]

    logs = [part for pod in pods[:MAX_PODS] for part in _logs(reads, pod)]
    return [
        BundlePart("release/pods.json", partial(told, pods)),
        BundlePart("release/pools.json", pools),
        BundlePart("release/events.json", events),
        BundlePart("release/pods-without-logs.json", partial(told, names[MAX_PODS:])),
        *logs,
    ]


def _logs(reads: ReleaseReads, pod: Object) -> list[BundlePart]:
    """Of a container that was started again also what it wrote before; of one that has not begun,
    nothing."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    parts = []
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        begun = bool(each.get("state", {}).keys() & {"running", "terminated"})
        for previous, is_there in ((False, begun), (True, each.get("restartCount", 0) > 0)):
            if is_there:
                path = f"release/logs/{name}/{each['name']}{'.previous' if previous else ''}.log"
                read = partial(
                    reads.log, name, each["name"], previous=previous, num_lines=LOG_LINES
                )
                parts.append(BundlePart(path, read))
    return parts


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _is_about(event: Object, release: str) -> bool:
    """Objects of a release have names that begin with its own."""
    return str((event.get("involvedObject") or {}).get("name", "")).startswith(release)
