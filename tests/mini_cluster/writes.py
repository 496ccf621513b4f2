"""Every way to write an object through the API, each from a body to what is stored.

    body ──▶ received ──▶ merged or applied ──▶ defaults ──▶ validated ──▶ managers ──▶ store

A dry run does all that to a copy of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.mini_cluster.admission import after_creation, first_status, received, with_defaults
from tests.mini_cluster.apply import Bookkeeper, Manager
from tests.mini_cluster.history import Object
from tests.mini_cluster.limit_ranges import admit_pod
from tests.mini_cluster.merge import json_merge, json_patch, strategic_merge
from tests.mini_cluster.metadata import timestamp
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal, not_found
from tests.mini_cluster.resources import Resource
from tests.mini_cluster.scale import scale_of, scaled
from tests.mini_cluster.schemas import Node
from tests.mini_cluster.validation import validate

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Writes:
    """To one kind of object in one namespace, by one manager. All raise Refusal."""

    store: ObjectStore
    resource: Resource
    namespace: str
    manager: Manager

    def create(self, body: Object) -> Object:
        """Into a namespace that is there; without whatever status it says."""
        new = received(self.resource, body, self.namespace)
        new.pop("status", None)
        if self.namespace and self.store.find("namespaces", "", self.namespace) is None:
            raise not_found("namespaces", self.namespace)
        return self._created(self._book.updated(None, self._checked(new), self.manager))

    def replace(self, name: str, body: Object) -> Object:
        """All of it, or what the manager's subresource is of it."""
        live = self.store.get(self.resource.name, self.namespace, name)
        return self._written(live, received(self.resource, body, self.namespace))

    def patch(self, name: str, patch: Any, media_type: str) -> Object:
        """By a JSON merge, a JSON patch or a strategic merge, as the media type says."""
        live = self.store.get(self.resource.name, self.namespace, name)
        return self._written(live, self._patched(live, patch, media_type, self._node))

    def apply(self, name: str, wanted: Object, *, force: bool) -> Object:
        """Server-side apply; creates what is not there."""
        wanted = received(self.resource, wanted, self.namespace)
        wanted.pop("status", None)
        wanted["metadata"].setdefault("name", name)
        live = self.store.find(self.resource.name, self.namespace, name)
        made = self._checked(self._book.applied(live, wanted, self.manager, force))
        if live is None:
            return self._created(made)
        return self.store.update(self.resource.name, made)

    def scale(self, name: str, body: Any, media_type: str | None) -> Object:
        """`media_type` None: the body is the new Scale; else a patch to it. Returns the Scale."""
        live = self.store.get(self.resource.name, self.namespace, name)
        before = scale_of(self.resource, live)
        patched = self._patched(before, body, media_type, Node({})) if media_type else body
        made = self._checked(scaled(self.resource, live, patched))
        signed = self._book.updated(live, made, self.manager)
        return scale_of(self.resource, self.store.update(self.resource.name, signed))

    @property
    def _node(self) -> Node:
        return Node.of(self.resource)

    @property
    def _book(self) -> Bookkeeper:
        return Bookkeeper(
            self._node, self.resource.api_version, lambda: timestamp(datetime.now(UTC))
        )

    def _patched(self, live: Object, patch: Any, media_type: str, node: Node) -> Object:
        made: Object
        if media_type == JSON_PATCH:
            made = json_patch(live, patch)
        elif media_type == STRATEGIC:
            made = strategic_merge(live, patch, node)
        else:
            made = json_merge(live, patch)
        return made

    def _written(self, live: Object, made: Object) -> Object:
        """A write of the whole leaves the status alone, and one of the status all else."""
        if self.manager.subresource == "status":
            validate(self.resource, made)
            key = (self.resource.name, self.namespace, live["metadata"]["name"])
            version = made["metadata"].get("resourceVersion", "")
            return self.store.set_status(*key, made.get("status", {}), version)
        made = received(self.resource, made, self.namespace)
        made |= {"status": live["status"]} if "status" in live else {}
        checked = self._checked(made)
        return self.store.update(
            self.resource.name, self._book.updated(live, checked, self.manager)
        )

    def _checked(self, made: Object) -> Object:
        """Complete, and valid."""
        if not made["metadata"].keys() & {"name", "generateName"}:
            raise Refusal(422, "Invalid", "metadata.name: Required value: name is required")
        with_defaults(self.resource, made)
        validate(self.resource, made)
        return made

    def _created(self, made: Object) -> Object:
        if self.resource.name == "pods":
            admit_pod(self.store, made)
        if status := first_status(self.resource, made):
            made = made | {"status": status}
        created = self.store.create(self.resource.name, made)
        after_creation(self.store, self.resource, created)
        return created
