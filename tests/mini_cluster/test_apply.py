"""Server-side apply on deployments, without a server."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.mini_cluster.apply import Bookkeeper, Manager
from tests.mini_cluster.fields import flat, nested, paths_in
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.resources import Resources
from tests.mini_cluster.schemas import Node

_ONE, _TWO = Manager("one", "Apply"), Manager("two", "Apply")
_WRITER = Manager("kubectl", "Update")


def the_node() -> Node:
    resource = Resources(ObjectStore()).find("apps/v1", "deployments")
    assert resource is not None
    return Node.of(resource)


def applied(
    live: Object | None, wanted: Object, manager: Manager, *, force: bool = False
) -> Object:
    return Bookkeeper(the_node(), "apps/v1", lambda: "now").applied(live, wanted, manager, force)


def updated(live: Object, new: Object) -> Object:
    return Bookkeeper(the_node(), "apps/v1", lambda: "now").updated(live, new, _WRITER)


def containers(*made: Object, **spec: Any) -> Object:
    return {"spec": spec | {"template": {"spec": {"containers": list(made)}}}}


def managers(found: Object) -> dict[str, Object]:
    return {each["manager"]: each["fieldsV1"] for each in found["metadata"]["managedFields"]}


def test_what_a_manager_no_longer_applies_goes() -> None:
    live = applied(None, {"spec": {"replicas": 2, "paused": True}}, _ONE)
    live = applied(live, {"spec": {"replicas": 2}}, _ONE)
    assert live["spec"] == {"replicas": 2}
    assert managers(live) == {"one": {"f:spec": {"f:replicas": {}}}}


def test_what_another_manager_applies_as_well_stays() -> None:
    live = applied(None, {"spec": {"replicas": 2, "paused": True}}, _ONE)
    live = applied(live, {"spec": {"paused": True}}, _TWO)
    live = applied(live, {"spec": {"replicas": 2}}, _ONE)
    assert live["spec"] == {"replicas": 2, "paused": True}


def test_two_managers_each_have_items_of_one_list() -> None:
    live = applied(None, containers({"name": "web", "image": "web:1"}), _ONE)
    live = applied(live, containers({"name": "log", "image": "log:1"}), _TWO)
    live = applied(live, containers({"name": "web", "image": "web:2"}), _ONE)
    assert live["spec"]["template"]["spec"]["containers"] == [
        {"name": "web", "image": "web:2"},
        {"name": "log", "image": "log:1"},
    ]
    live = applied(live, {"spec": {"template": {"spec": {"containers": []}}}}, _TWO)
    assert [c["name"] for c in live["spec"]["template"]["spec"]["containers"]] == ["web"]


def test_ports_are_told_apart_by_number_and_protocol_even_where_that_is_left_out() -> None:
    port = {"containerPort": 80}
    live = applied(None, containers({"name": "web", "ports": [port]}), _ONE)
    live["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    live = applied(live, containers({"name": "web", "ports": [port | {"name": "http"}]}), _ONE)
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}]


def test_a_conflict_names_each_manager_and_field_and_changes_nothing() -> None:
    live = applied(None, containers({"name": "web", "image": "web:1"}, replicas=1), _ONE)
    live = updated(live, live | {"spec": live["spec"] | {"replicas": 3}})
    before = deepcopy(live)
    with pytest.raises(Refusal) as refused:
        applied(live, containers({"name": "web", "image": "web:2"}, replicas=2), _TWO)
    assert str(refused.value) == (
        'Apply failed with 2 conflicts: conflict with "one": '
        '.spec.template.spec.containers[name="web"].image; '
        'conflict with "kubectl" using apps/v1: .spec.replicas'
    )
    assert live == before


def test_a_field_that_both_want_alike_is_no_conflict_and_belongs_to_both() -> None:
    live = applied(None, {"spec": {"replicas": 2}}, _ONE)
    live = applied(live, {"spec": {"replicas": 2}}, _TWO)
    assert set(managers(live)) == {"one", "two"}


def test_who_forces_takes_the_field_from_the_other() -> None:
    live = applied(None, {"spec": {"replicas": 2, "paused": True}}, _ONE)
    live = applied(live, {"spec": {"replicas": 3}}, _TWO, force=True)
    assert managers(live) == {
        "one": {"f:spec": {"f:paused": {}}},
        "two": {"f:spec": {"f:replicas": {}}},
    }


def test_a_list_without_keys_is_one_field() -> None:
    wanted = containers({"name": "web", "args": ["--port", "1"]})
    live = applied(None, wanted, _ONE)
    live = applied(live, containers({"name": "web", "args": ["--quiet"]}), _ONE)
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--quiet"]


def test_paths_written_down_as_managed_fields_are_read_back() -> None:
    made = containers(
        {"name": "web", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]},
        replicas=1,
        selector={"matchLabels": {}},
    )
    paths = set(flat(made | {"metadata": {"finalizers": ["a", "b"]}}, the_node()))
    assert len(paths) > 9
    assert paths_in(nested(paths)) == paths
