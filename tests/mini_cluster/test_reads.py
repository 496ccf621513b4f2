"""Lists and watches over HTTPS, as informers use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object

_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def client(cluster: MiniCluster) -> Iterator[httpx.Client]:
    with cluster.client() as made:
        yield made
        made.delete(_CONFIG_MAPS)


def make(client: httpx.Client, name: str, **labels: str) -> Object:
    body = {"metadata": {"name": name, "labels": labels}, "data": {"name": name}}
    made = client.post(_CONFIG_MAPS, json=body)
    assert made.status_code == 201, made.text
    return dict(made.json())


def names(found: Object) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


def events(client: httpx.Client, num_events: int, **params: Any) -> list[Object]:
    """The first so many of a watch."""
    with client.stream("GET", _CONFIG_MAPS, params={"watch": "1", **params}) as answer:
        lines = answer.iter_lines()
        return [json.loads(next(lines)) for _ in range(num_events)]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("color=red", ["one"]),
        ("color!=red", ["three", "two"]),
        ("color in (red, blue),size", ["two"]),
        ("color notin (red)", ["three", "two"]),
        ("!size", ["one", "three"]),
    ],
)
def test_a_label_selector_says_which_are_listed(
    client: httpx.Client, selector: str, found: list[str]
) -> None:
    make(client, "one", color="red")
    make(client, "two", color="blue", size="big")
    make(client, "three")
    assert names(client.get(_CONFIG_MAPS, params={"labelSelector": selector}).json()) == found


def test_a_field_selector_names_one_object(client: httpx.Client) -> None:
    make(client, "one")
    make(client, "two")
    selector = {"fieldSelector": "metadata.name=two"}
    assert names(client.get(_CONFIG_MAPS, params=selector).json()) == ["two"]


def test_a_list_comes_in_pages_that_all_say_the_first_ones_version(client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        make(client, name)
    first = client.get(_CONFIG_MAPS, params={"limit": 2}).json()
    make(client, "d")
    token = first["metadata"]["continue"]
    second = client.get(_CONFIG_MAPS, params={"limit": 2, "continue": token}).json()
    assert names(first) + names(second) == ["a", "b", "c", "d"]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second)}
    assert len(versions) == 1
    assert "continue" not in second["metadata"]


def test_a_watch_goes_on_where_a_list_ended(client: httpx.Client) -> None:
    make(client, "one")
    version = client.get(_CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    make(client, "two")
    client.delete(f"{_CONFIG_MAPS}/one")
    seen = events(client, 2, resourceVersion=version)
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "two"),
        ("DELETED", "one"),
    ]


def test_a_watch_that_asks_for_what_is_there_is_told_where_that_ends(client: httpx.Client) -> None:
    make(client, "one")
    wanted = {"sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    added, bookmark = events(client, 2, **wanted, resourceVersionMatch="NotOlderThan")
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    annotations = bookmark["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["kind"] == "ConfigMap"


def test_a_watch_from_before_what_is_remembered_is_told_to_list_again(
    cluster: MiniCluster, client: httpx.Client
) -> None:
    version = make(client, "one")["metadata"]["resourceVersion"]

    def write_much() -> None:
        found = cluster.store.get("configmaps", "default", "one")
        del found["metadata"]["resourceVersion"]
        for n in range(5001):
            cluster.store.update("configmaps", found | {"data": {"n": str(n)}})

    cluster.call(write_much)
    (error,) = events(client, 1, resourceVersion=version)
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    assert error["object"]["reason"] == "Expired"


def test_who_shows_no_token_is_forbidden_all_but_the_version_and_a_wrong_one_is_not_known(
    cluster: MiniCluster,
) -> None:
    with cluster.client() as client:
        wrong = client.get(_CONFIG_MAPS, headers={"Authorization": "Bearer of yesterday"})
        del client.headers["Authorization"]
        listed, found = client.get(_CONFIG_MAPS), client.get("/apis")
        asked = client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json={})
        assert client.get("/version").status_code == 200
    assert wrong.status_code == 401
    assert {each.status_code for each in (listed, found, asked)} == {403}
    assert (
        'configmaps is forbidden: User "system:anonymous" cannot list' in listed.json()["message"]
    )
