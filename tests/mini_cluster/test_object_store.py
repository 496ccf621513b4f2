"""Versions, conflicts, ends and watches, as controllers rely on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.mini_cluster.history import Event, Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal

_NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def a_store(**options: Any) -> ObjectStore:
    return ObjectStore(clock=lambda: _NOON, **options)


def a_pod(name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def owned(pod: Object, *owners: Object) -> Object:
    references = [{"uid": owner["metadata"]["uid"], "name": "any"} for owner in owners]
    return pod | {"metadata": pod["metadata"] | {"ownerReferences": references}}


async def first(store: ObjectStore, num_events: int, since: int | None = None) -> list[Event]:
    found = []
    async for event in store.watch("pods", since):
        found.append(event)
        if len(found) == num_events:
            break
    return found


def test_a_stale_write_is_refused_and_a_write_of_what_is_there_makes_no_version() -> None:
    store = a_store()
    read = store.create("pods", a_pod("web", nodeName="one"))
    store.edit("pods", "default", "web", lambda pod: pod["metadata"].update(labels={"a": "b"}))
    with pytest.raises(Refusal, match="the object has been modified") as refused:
        store.update("pods", read)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    version = store.version
    store.edit("pods", "default", "web", lambda pod: None)
    assert store.version == version


def test_the_generation_counts_changes_of_the_spec_alone() -> None:
    store = a_store()
    store.create("pods", a_pod("web"))
    store.set_status("pods", "default", "web", {"phase": "Running"})
    store.edit("pods", "default", "web", lambda pod: pod["metadata"].update(labels={"a": "b"}))
    assert store.get("pods", "default", "web")["metadata"]["generation"] == 1
    store.edit("pods", "default", "web", lambda pod: pod["spec"].update(nodeName="one"))
    changed = store.edit("pods", "default", "web", lambda pod: pod.update(status={}))
    assert changed["metadata"]["generation"] == 2
    assert changed["status"] == {"phase": "Running"}


def test_a_pod_on_a_node_stays_until_its_kubelet_says_that_it_has_ended() -> None:
    store = a_store()
    store.create("pods", a_pod("web", nodeName="one", terminationGracePeriodSeconds=90))
    doomed = store.delete("pods", "default", "web")
    assert doomed["metadata"]["deletionTimestamp"] == "2026-11-22T12:01:30Z"
    hurried = store.delete("pods", "default", "web", grace_s=5)
    assert hurried["metadata"]["deletionTimestamp"] == "2026-11-22T12:00:05Z"
    store.delete("pods", "default", "web", grace_s=0)
    assert store.find("pods", "default", "web") is None


def test_a_finalizer_holds_what_is_being_deleted_until_it_is_removed() -> None:
    store = a_store()
    pod = a_pod("web")
    pod["metadata"]["finalizers"] = ["example.org/hold"]
    store.create("pods", pod)
    assert "deletionTimestamp" in store.delete("pods", "default", "web")["metadata"]
    store.edit("pods", "default", "web", lambda pod: pod["metadata"].pop("finalizers"))
    assert store.select("pods") == []


def test_what_an_object_alone_owned_goes_with_it_and_what_others_own_as_well_stays() -> None:
    store = a_store()
    one, two = store.create("pods", a_pod("one")), store.create("pods", a_pod("two"))
    child = store.create("pods", owned(a_pod("child"), one))
    store.create("pods", owned(a_pod("grandchild"), child))
    store.create("pods", owned(a_pod("shared"), one, two))
    store.delete("pods", "default", "one")
    assert [pod["metadata"]["name"] for pod in store.select("pods")] == ["shared", "two"]
    store.delete("pods", "default", "two", orphans=True)
    assert [pod["metadata"]["name"] for pod in store.select("pods")] == ["shared"]


def test_what_is_created_for_an_owner_that_has_gone_goes_too() -> None:
    store = a_store()
    one = store.create("pods", a_pod("one"))
    store.delete("pods", "default", "one")
    store.create("pods", owned(a_pod("late"), one))
    assert store.select("pods") == []


async def test_a_watch_begins_with_what_is_there_and_goes_on_with_each_change() -> None:
    store = a_store()
    store.create("pods", a_pod("web"))
    store.create("nodes", {"kind": "Node", "metadata": {"name": "one"}})
    watch = store.watch("pods")
    seen = [await anext(watch), await anext(watch)]
    store.set_status("pods", "default", "web", {"phase": "Running"})
    store.delete("pods", "default", "web")
    seen += [await anext(watch), await anext(watch)]
    assert [event.type for event in seen] == ["ADDED", "BOOKMARK", "MODIFIED", "DELETED"]
    assert [event.object["metadata"]["resourceVersion"] for event in seen] == ["1", "2", "3", "4"]


async def test_a_watch_goes_on_from_any_version_that_the_history_has() -> None:
    store = a_store(history_length=2)
    for name in ("one", "two", "three"):
        store.create("pods", a_pod(name))
    seen = await first(store, 2, since=1)
    assert [event.object["metadata"]["name"] for event in seen] == ["two", "three"]
    with pytest.raises(Refusal, match="too old resource version: 0") as refused:
        await first(store, 1, since=0)
    assert refused.value.code == 410


async def test_a_watcher_to_whom_nothing_happens_is_told_the_version_now_and_then() -> None:
    store = a_store()
    for n in range(50):
        store.create("nodes", {"kind": "Node", "metadata": {"name": f"node-{n}"}})
    (bookmark,) = await first(store, 1, since=0)
    assert (bookmark.type, bookmark.object["metadata"]["resourceVersion"]) == ("BOOKMARK", "50")


async def test_what_begins_to_match_is_added_and_what_ceases_to_is_deleted() -> None:
    store = a_store()
    store.create("pods", a_pod("web"))
    store.edit("pods", "default", "web", lambda pod: pod["spec"].update(nodeName="one"))
    store.edit("pods", "default", "web", lambda pod: pod["spec"].update(nodeName="two"))
    watch = store.watch("pods", 0, matches=lambda pod: pod["spec"].get("nodeName") == "one")
    seen = [await anext(watch), await anext(watch)]
    assert [event.type for event in seen] == ["ADDED", "DELETED"]
