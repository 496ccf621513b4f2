"""What a cluster's API server keeps: objects by resource, namespace and name.

    store = ObjectStore()
    store.create("deployments.apps", {"metadata": {"name": "web", "namespace": "default"}, ...})
    store.edit("pods", "default", "web-1", lambda pod: pod["spec"].update(nodeName="node"))
    store.set_status("pods", "default", "web-1", {"phase": "Running"})
    async for event in store.watch("pods"):  # what is there first, then each change
        event.type, event.object

A resource is named as kubectl names it in full: `pods`, `services`, `deployments.apps`,
`leases.coordination.k8s.io`. Namespace "" is for what lies in none (`nodes`, `namespaces`), and
for all namespaces where many objects are asked for.

All calls from one event loop; all but `watch` are done when they return, so that a controller
that reads and writes without awaiting in between meets no conflict. Objects that go in or come
out are copies. A write that changes nothing makes no version and no event.

An object's life:

    create ──▶ there ──▶ delete ──▶ deletionTimestamp set ──▶ gone, then what it alone owned
                            │         (pods on a node: until delete with grace_s=0, the kubelet's
                            │          last word; all: until the last finalizer has been removed)
                            └───────▶ gone at once, where nobody waits
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests.mini_cluster import refusals
from tests.mini_cluster.history import Change, Event, History, Matches, Object
from tests.mini_cluster.metadata import (
    grace_s_of,
    keep_what_the_server_owns,
    owners,
    timestamp,
    without_version,
)
from tests.mini_cluster.watching import bookmark, changes_after


class Key(NamedTuple):
    resource: str
    namespace: str
    name: str


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def everything(_: Object) -> bool:
    """Matches any object."""
    return True


class ObjectStore:
    """Every mutation raises Refusal, having changed nothing."""

    def __init__(
        self, *, clock: Callable[[], datetime] = _wall_clock, history_length: int = 5000
    ) -> None:
        """`history_length`: how many changes a watcher may be behind."""
        self._objects: dict[Key, Object] = {}
        self._history = History(history_length)
        self._clock = clock

    def copy(self) -> ObjectStore:
        """What is here now, in a store of its own."""
        made = ObjectStore(clock=self._clock)
        made._objects = dict(self._objects)
        made._history.version = self.version
        return made

    @property
    def version(self) -> int:
        """Of the last write; a list read now is of this version."""
        return self._history.version

    def get(self, resource: str, namespace: str, name: str) -> Object:
        """Refusal 404 if it is not there."""
        return deepcopy(self._stored(Key(resource, namespace, name)))

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        """None if it is not there."""
        found = self._objects.get(Key(resource, namespace, name))
        return deepcopy(found)

    def select(
        self, resource: str, namespace: str = "", matches: Matches = everything
    ) -> list[Object]:
        """By namespace and name. Namespace "": of all of them."""
        keys = sorted(
            key for key in self._objects if key.resource == resource if namespace in ("", key[1])
        )
        return [deepcopy(found) for key in keys if matches(found := self._objects[key])]

    def create(self, resource: str, new: Object) -> Object:
        """Names it if it has a `generateName` alone. 409 if the name is taken.

        What names owners of which none is there (any longer) is deleted at once, as the garbage
        collector would do a little later.
        """
        made = deepcopy(new)
        key = self._key_of_new(resource, made["metadata"])
        if key in self._objects:
            raise refusals.already_exists(resource, key.name)
        made["metadata"] |= {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": timestamp(self._clock()),
            "generation": 1,
        }
        written = self._write(key, made)
        self._delete_if_abandoned(key)
        return written

    def update(self, resource: str, new: Object) -> Object:
        """Replaces all but the status. With a `resourceVersion` other than the stored one: 409.

        What the server owns (uid, times, generation) stays as it was, whatever `new` says.
        Removing the last finalizer of what is being deleted ends it.
        """
        metadata = new["metadata"]
        key = Key(resource, metadata.get("namespace", ""), metadata["name"])
        old = self._stored(key)
        self._refuse_stale(key, metadata)
        made = deepcopy(new) | ({"status": deepcopy(old["status"])} if "status" in old else {})
        if "status" not in old:
            made.pop("status", None)
        keep_what_the_server_owns(made["metadata"], old["metadata"])
        if made.get("spec") != old.get("spec"):
            made["metadata"]["generation"] += 1
        return self._ended_or(key, self._write(key, made))

    def edit(
        self, resource: str, namespace: str, name: str, change: Callable[[Object], object]
    ) -> Object:
        """Updates what `change` has made of a copy, in place. 404 if it is not there."""
        draft = self.get(resource, namespace, name)
        change(draft)
        return self.update(resource, draft)

    def set_status(
        self, resource: str, namespace: str, name: str, status: Object, version: str = ""
    ) -> Object:
        """Replaces the status alone; generation stays. `version`: 409 if it is another by now."""
        key = Key(resource, namespace, name)
        made = self.get(*key) | {"status": deepcopy(status)}
        self._refuse_stale(key, {"resourceVersion": version})
        return self._write(key, made)

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        orphans: bool = False,
    ) -> Object:
        """Ends it, or asks for its end: then the object returned has a `deletionTimestamp`.

        A pod that is on a node (`spec.nodeName`) has `grace_s` (None: what its spec says) to end;
        its kubelet deletes it with `grace_s=0` when it has. A later call can only shorten that.
        `uid`: 409 if it is another's by now. `orphans`: what it owns stays, without that owner.
        """
        key = Key(resource, namespace, name)
        doomed = self.get(*key)
        if uid not in (None, doomed["metadata"]["uid"]):
            raise refusals.conflict(resource, name, "the UID in the precondition is another's")
        if orphans:
            self._disown(doomed["metadata"]["uid"])
        grace_s = grace_s_of(doomed, grace_s)
        if not grace_s and not doomed["metadata"].get("finalizers"):
            return self._remove(key)
        return self._write(key, self._marked(doomed, grace_s))

    async def watch(
        self,
        resource: str,
        since: int | None = None,
        *,
        namespace: str = "",
        matches: Matches = everything,
    ) -> AsyncGenerator[Event, None]:
        """For ever: the changes after version `since`, in order; bookmarks in between.

        `since` None: first an ADDED for each object that is there, then a BOOKMARK. Refusal 410
        when the history no longer has what came next: list anew. What begins or ceases to match
        is ADDED or DELETED. The reader leaves by closing the iterator.
        """
        seen = self.version if since is None else since
        if since is None:
            for found in self.select(resource, namespace, matches):
                yield Event("ADDED", found)
            yield bookmark(seen)
        later = changes_after(seen, self._history, resource, namespace=namespace, matches=matches)
        async with aclosing(later):
            async for event in later:
                yield event

    async def wait_for_more(self, version: int) -> None:
        """Until anything has been written after it. Whoever calls bounds the wait."""
        await self._history.wait_for_more(version)

    def _stored(self, key: Key) -> Object:
        if key not in self._objects:
            raise refusals.not_found(key.resource, key.name)
        return self._objects[key]

    def _key_of_new(self, resource: str, metadata: Object) -> Key:
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        return Key(resource, metadata.get("namespace", ""), metadata["name"])

    def _refuse_stale(self, key: Key, metadata: Object) -> None:
        stored = self._stored(key)["metadata"]
        if metadata.get("resourceVersion") not in (None, "", stored["resourceVersion"]):
            raise refusals.stale(key.resource, key.name)
        if metadata.get("uid") not in (None, "", stored["uid"]):
            raise refusals.conflict(key.resource, key.name, "the UID is another's")

    def _write(self, key: Key, made: Object) -> Object:
        """Stores and tells, unless it is what is there. `made` is nobody else's."""
        old = self._objects.get(key)
        if old is not None and without_version(old) == without_version(made):
            return deepcopy(old)
        version = self.version + 1
        made["metadata"]["resourceVersion"] = str(version)
        self._objects[key] = made
        self._history.append(Change(version, key.resource, old, made))
        return deepcopy(made)

    def _remove(self, key: Key) -> Object:
        old = self._objects.pop(key)
        version = self.version + 1
        last = deepcopy(old)
        last["metadata"]["resourceVersion"] = str(version)
        self._history.append(Change(version, key.resource, old, last, is_deletion=True))
        for owned in self._owned_by(old["metadata"]["uid"]):
            self._delete_if_abandoned(owned)
        return deepcopy(last)

    def _ended_or(self, key: Key, written: Object) -> Object:
        metadata = written["metadata"]
        is_done = metadata.get("deletionGracePeriodSeconds") == 0
        return self._remove(key) if is_done and not metadata.get("finalizers") else written

    def _marked(self, doomed: Object, grace_s: int) -> Object:
        """With the moment by which it should have ended; never later than it was before."""
        end = timestamp(self._clock() + timedelta(seconds=grace_s))
        metadata = doomed["metadata"]
        if grace_s < metadata.get("deletionGracePeriodSeconds", grace_s + 1):
            metadata |= {"deletionTimestamp": end, "deletionGracePeriodSeconds": grace_s}
        return doomed

    def _owned_by(self, uid: str) -> list[Key]:
        return [key for key, found in self._objects.items() if uid in owners(found)]

    def _disown(self, uid: str) -> None:
        for key in self._owned_by(uid):
            made = self.get(*key)
            references = made["metadata"]["ownerReferences"]
            made["metadata"]["ownerReferences"] = [r for r in references if r["uid"] != uid]
            self._write(key, made)

    def _delete_if_abandoned(self, key: Key) -> None:
        """Where it has owners, and none of them is there."""
        found = self._objects.get(key)  # None: a circle of owners has come back to it
        named = owners(found) if found else set()
        if named and not named & {each["metadata"]["uid"] for each in self._objects.values()}:
            self.delete(*key)
