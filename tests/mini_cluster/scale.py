"""The `/scale` part of what has replicas: one number to set, one to see."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.resources import Resource

_SPEC, _STATUS = ".spec.replicas", ".status.replicas"


def scale_of(resource: Resource, found: Object) -> Object:
    """As autoscaling/v1 has it."""
    metadata = {
        key: found["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    spec, status = _paths(resource)
    selector = found["spec"].get("selector", {})
    labels = selector.get("matchLabels", selector).items() if isinstance(selector, dict) else ()
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": _at(found, spec)},
        "status": {
            "replicas": _at(found, status),
            "selector": ",".join(f"{key}={value}" for key, value in labels),
        },
    }


def scaled(resource: Resource, found: Object, scale: Object) -> Object:
    """A copy with the replicas that the scale names, and its version, so that a stale one is
    refused."""
    path, _ = _paths(resource)
    *above, last = path.strip(".").split(".")
    place = made = deepcopy(found)
    for step in above:
        place = place.setdefault(step, {})
    place[last] = scale["spec"].get("replicas", 0)
    version = scale["metadata"].get("resourceVersion")
    return made | {"metadata": made["metadata"] | {"resourceVersion": version}}


def _paths(resource: Resource) -> tuple[str, str]:
    if resource.custom is None:
        return _SPEC, _STATUS
    own = resource.custom["subresources"]["scale"]
    return own["specReplicasPath"], own["statusReplicasPath"]


def _at(found: Any, path: str) -> int:
    for step in path.strip(".").split("."):
        found = found.get(step, {})
    return found or 0
