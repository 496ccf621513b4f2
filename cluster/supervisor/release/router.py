"""The routers of a release: without one nobody reaches its workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.scaling.groups import Object
from cluster.scaling.kubernetes import COMPONENT_LABEL


def routers_of(release: str) -> str:
    """The labels of a release's routers."""
    return (
        f"app.kubernetes.io/name=splitserve,app.kubernetes.io/instance={release},"
        f"{COMPONENT_LABEL}=router"
    )


def why_no_router(found: Sequence[Object]) -> str:
    """Empty: one is ready, or this release has none of its own."""
    if not found:
        return ""
    wanted = sum(each["spec"].get("replicas", 1) for each in found)
    ready = sum((each.get("status") or {}).get("readyReplicas", 0) for each in found)
    return "" if ready else f"no router is ready yet, of {wanted}"
