"""The three older kinds of patches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mini_cluster.history import Object
from tests.mini_cluster.merge import json_merge, json_patch, strategic_merge
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.resources import Resources
from tests.mini_cluster.schemas import Node

_WEB, _LOG = {"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}


def merged(containers: list[Object], patch: Object) -> Any:
    resource = Resources(ObjectStore()).find("v1", "pods")
    assert resource is not None
    found = strategic_merge(
        {"spec": {"containers": containers}}, {"spec": patch}, Node.of(resource)
    )
    return found["spec"].get("containers")


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"containers": [{"name": "log", "image": "log:2"}]}, [_WEB, _LOG | {"image": "log:2"}]),
        ({"containers": [{"name": "web", "$patch": "delete"}]}, [_LOG]),
        ({"containers": [{"$patch": "replace"}, _LOG]}, [_LOG]),
        ({"containers": None}, None),
        ({"$setElementOrder/containers": [{"name": "log"}, {"name": "web"}]}, [_LOG, _WEB]),
        ({"$retainKeys": []}, None),
        ({"$patch": "replace", "containers": [_WEB]}, [_WEB]),
    ],
)
def test_a_strategic_merge_knows_a_lists_items_by_name(patch: Object, result: Any) -> None:
    assert merged([_WEB, _LOG], patch) == result


def test_a_strategic_merge_adds_to_a_list_of_words_and_takes_from_it() -> None:
    resource = Resources(ObjectStore()).find("v1", "pods")
    assert resource is not None
    patch = {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}
    made = strategic_merge({"metadata": {"finalizers": ["a", "b"]}}, patch, Node.of(resource))
    assert made["metadata"]["finalizers"] == ["b", "c"]


def test_a_json_merge_replaces_lists_and_removes_what_is_null() -> None:
    made = json_merge({"a": [1], "b": {"c": 1, "d": 2}}, {"a": [2], "b": {"c": None}})
    assert made == {"a": [2], "b": {"d": 2}}


def test_a_json_patch_goes_operation_by_operation() -> None:
    made = json_patch(
        {"list": ["a", "b"], "x/y": 1},
        [
            {"op": "test", "path": "/list/0", "value": "a"},
            {"op": "remove", "path": "/list/0"},
            {"op": "add", "path": "/list/-", "value": "c"},
            {"op": "replace", "path": "/x~1y", "value": 2},
        ],
    )
    assert made == {"list": ["b", "c"], "x/y": 2}
