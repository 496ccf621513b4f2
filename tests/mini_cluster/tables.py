"""What `kubectl get` prints: columns by kind, made by the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.resources import Resource


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    cell: Callable[[Object], Any]
    is_wide: bool = False
    """Printed with `-o wide` alone."""


def table(resource: Resource, found: list[Object], version: str) -> Object:
    """One row for each object."""
    columns = _columns(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [
            {
                "cells": [column.cell(each) for column in columns],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": each["metadata"],
                },
            }
            for each in found
        ],
    }


def _definition(column: Column) -> Object:
    format_ = "name" if column.name == "Name" else ""
    priority = 1 if column.is_wide else 0
    return {"name": column.name, "type": "string", "format": format_, "priority": priority}


def _columns(resource: Resource) -> list[Column]:
    own = _OF_KIND.get(resource.kind, [])
    if resource.custom is not None:
        own = [_custom(words) for words in resource.custom.get("additionalPrinterColumns", ())]
    narrow = [column for column in own if not column.is_wide and column.name != "Age"]
    return [_NAME, *narrow, _AGE, *(column for column in own if column.is_wide)]


def _custom(words: Object) -> Column:
    return Column(words["name"], at(words["jsonPath"]), words.get("priority", 0) > 0)


def at(path: str, default: Any = "") -> Callable[[Object], Any]:
    """What lies at a path of names between dots."""

    def cell(found: Any) -> Any:
        for step in path.strip(".").split("."):
            found = found.get(step) if isinstance(found, dict) else None
        return default if found is None else found

    return cell


def age(found: Object) -> str:
    """Since its creation: seconds, minutes, hours or days, whichever is short."""
    born = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
    seconds = max(0, int((datetime.now(UTC) - born).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _containers(found: Object) -> list[Object]:
    """Their statuses."""
    statuses: list[Object] = found.get("status", {}).get("containerStatuses", [])
    return statuses


def _ready_containers(found: Object) -> str:
    ready = sum(bool(status.get("ready")) for status in _containers(found))
    return f"{ready}/{len(found['spec']['containers'])}"


def _pod_status(found: Object) -> str:
    """The phase, or what keeps the pod from it."""
    if "deletionTimestamp" in found["metadata"]:
        return "Terminating"
    states = [status.get("state", {}) for status in _containers(found)]
    waits = [state[kind].get("reason") for state in states for kind in state if kind != "running"]
    phase: str = found.get("status", {}).get("phase", "Unknown")
    return next(filter(None, waits), "Completed" if phase == "Succeeded" else phase)


def _restarts(found: Object) -> int:
    return sum(status.get("restartCount", 0) for status in _containers(found))


def _ready_replicas(found: Object) -> str:
    return f"{at('status.readyReplicas', 0)(found)}/{at('spec.replicas', 0)(found)}"


def _ports(found: Object) -> str:
    ports = found["spec"].get("ports", ())
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _images(found: Object) -> str:
    containers = found["spec"]["template"]["spec"]["containers"]
    return ",".join(container.get("image", "") for container in containers)


def _selector(found: Object) -> str:
    selector = found["spec"].get("selector") or {}
    labels = selector.get("matchLabels", selector)
    return ",".join(f"{key}={value}" for key, value in labels.items()) or "<none>"


def _num_data(found: Object) -> int:
    return len(found.get("data", {}))


_NAME = Column("Name", at("metadata.name"))
_AGE = Column("Age", age)
_DATA = Column("Data", _num_data)
_READY = Column("Ready", _ready_replicas)
_IMAGES = [Column("Images", _images, True), Column("Selector", _selector, True)]
_STATUS = Column("Status", at("status.phase"))
_OF_KIND = {
    "Pod": [
        Column("Ready", _ready_containers),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        Column("IP", at("status.podIP", "<none>"), True),
        Column("Node", at("spec.nodeName", "<none>"), True),
    ],
    "Deployment": [
        _READY,
        Column("Up-to-date", at("status.updatedReplicas", 0)),
        Column("Available", at("status.availableReplicas", 0)),
        *_IMAGES,
    ],
    "ReplicaSet": [
        Column("Desired", at("spec.replicas", 0)),
        Column("Current", at("status.replicas", 0)),
        Column("Ready", at("status.readyReplicas", 0)),
        *_IMAGES,
    ],
    "StatefulSet": [_READY, *_IMAGES],
    "Service": [
        Column("Type", at("spec.type")),
        Column("Cluster-IP", at("spec.clusterIP", "<none>")),
        Column("Port(s)", _ports),
        Column("Selector", _selector, True),
    ],
    "Secret": [Column("Type", at("type")), _DATA],
    "ConfigMap": [_DATA],
    "Namespace": [_STATUS],
    "PersistentVolumeClaim": [_STATUS, Column("Volume", at("spec.volumeName"))],
    "Job": [
        Column("Completions", at("status.succeeded", 0)),
    ],
    "Lease": [Column("Holder", at("spec.holderIdentity"))],
    "PodDisruptionBudget": [
        Column("Min available", at("spec.minAvailable", "N/A")),
        Column("Max unavailable", at("spec.maxUnavailable", "N/A")),
        Column("Allowed disruptions", at("status.disruptionsAllowed", 0)),
    ],
}
