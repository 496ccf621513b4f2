"""The API's schemas, as kubernetes-validate has them, and those of custom resources.

What is asked of them is what a field is and how lists merge; validation.py asks for the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.resources import Resource

_FILE = "kubernetes-json-schema/v1.37.0-local-strict/_definitions.json"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@cache
def definitions() -> Object:
    """Every type of the API, with a `$id` that references begin with."""
    found: Object = json.loads(files("kubernetes_validate").joinpath(_FILE).read_text())
    return found


@cache
def _by_kind() -> dict[tuple[str, str, str], str]:
    return {
        (kind["group"], kind["version"], kind["kind"]): name
        for name, words in definitions()["$defs"].items()
        for kind in words.get("x-kubernetes-group-version-kind", ())
    }


def schema_of(resource: Resource) -> Object:
    """Refuses unknown fields, but where a custom resource's own says that it keeps them."""
    if resource.custom is None:
        return reference(_by_kind()[resource.group, resource.version, resource.kind])
    own: Object = _closed(resource.custom["schema"]["openAPIV3Schema"])
    properties = own.get("properties", {}) | {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": reference(_METADATA),
    }
    return own | {"properties": properties}


def reference(name: str) -> Object:
    """To a definition, from anywhere."""
    return {"$ref": f"{definitions()['$id']}#/$defs/{name}"}


def _closed(words: Any) -> Any:
    """A custom resource's schema, whose objects have no fields but those it names."""
    if isinstance(words, list):
        return [_closed(each) for each in words]
    if not isinstance(words, dict):
        return words
    made = {key: _closed(each) for key, each in words.items()}
    if words.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    if words.get("nullable") and isinstance(words.get("type"), str):
        made["type"] = [words["type"], "null"]
    is_open = words.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(words.get("properties"), dict) and words.get("type") == "object" and not is_open:
        made.setdefault("additionalProperties", False)
    return made


@dataclass(frozen=True, slots=True)
class Node:
    """One place in a schema. Where the schema says nothing: maps merge, lists are replaced."""

    words: Object

    @classmethod
    def of(cls, resource: Resource) -> Node:
        return cls.at(schema_of(resource))

    @classmethod
    def at(cls, words: Object) -> Node:
        """What stands beside a reference counts for more than what it refers to."""
        if "$ref" in words:
            name = words["$ref"].rpartition("/")[2]
            words = definitions()["$defs"][name] | words
        return cls(words)

    def field(self, name: str) -> Node:
        properties = self.words.get("properties", {})
        if name in properties:
            return Node.at(properties[name])
        more = self.words.get("additionalProperties")
        return Node.at(more) if isinstance(more, dict) else Node({})

    @property
    def item(self) -> Node:
        return Node.at(self.words.get("items", {}))

    @property
    def is_atomic(self) -> bool:
        """A map that has one owner and is replaced as a whole."""
        return self.words.get("x-kubernetes-map-type") == "atomic"

    @property
    def is_set(self) -> bool:
        return self.words.get("x-kubernetes-list-type") == "set"

    @property
    def list_keys(self) -> list[str]:
        """What tells a list's items apart; none: the list is a set, or is replaced as a whole."""
        if self.words.get("x-kubernetes-list-type") != "map":
            return []
        keys: list[str] = self.words.get("x-kubernetes-list-map-keys", [])
        return keys

    @property
    def merge_key(self) -> str | None:
        """What a strategic merge patch tells items by; "": the items are their own keys."""
        if "merge" not in self.words.get("x-kubernetes-patch-strategy", "").split(","):
            return None
        key: str = self.words.get("x-kubernetes-patch-merge-key", "")
        return key
