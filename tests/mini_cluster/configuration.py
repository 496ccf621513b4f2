"""What pods are told: by config maps, by secrets, and of themselves."""

from __future__ import annotations

import base64

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore


class MissingConfiguration(Exception):
    """A container cannot start until somebody has made what it names."""


def config_map(store: ObjectStore, namespace: str, source: Object) -> dict[str, bytes]:
    """By key. Empty where it is missing and `optional`."""
    found = _found(store, "configmaps", namespace, source["name"], source)
    texts = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return texts | _decoded(found.get("binaryData"))


def secret(store: ObjectStore, namespace: str, source: Object) -> dict[str, bytes]:
    """By key. Empty where it is missing and `optional`. A volume says `secretName`."""
    name = source.get("secretName") or source["name"]
    return _decoded(_found(store, "secrets", namespace, name, source).get("data"))


def _found(store: ObjectStore, resource: str, namespace: str, name: str, source: Object) -> Object:
    found = store.find(resource, namespace, name)
    if found is None and not source.get("optional"):
        raise MissingConfiguration(f'{resource.removesuffix("s")} "{name}" not found')
    return found or {}


def _decoded(data: dict[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (data or {}).items()}


def field_of(pod: Object, path: str) -> str:
    """Of the downward API: `status.podIP`, `metadata.labels['app']`."""
    head, bracket, key = path.partition("['")
    found = pod
    for word in head.split("."):
        found = found.get(word) or {}
    value = found.get(key.removesuffix("']")) if bracket else found
    if isinstance(value, dict):
        return "\n".join(f'{name}="{text}"' for name, text in sorted(value.items()))
    return "" if value is None else str(value)
