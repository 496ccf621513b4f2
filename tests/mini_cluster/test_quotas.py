"""Quotas of a namespace: counted, and kept to, whoever makes the pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mini_cluster.conditions import status_of
from tests.mini_cluster.quotas import quota_status, refuse_beyond_quota
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.test_controllers import Cluster, a_deployment, template


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.loopback.close()


def make_quota(cluster: Cluster, **hard: str) -> dict[str, Any]:
    metadata = {"name": "small", "namespace": "default"}
    named = {name.replace("_", "."): amount for name, amount in hard.items()}
    return cluster.store.create("resourcequotas", {"metadata": metadata, "spec": {"hard": named}})


def asking(cpu: str) -> dict[str, Any]:
    made = template("first")
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return made


def test_a_deployment_gets_the_pods_that_a_quota_has_room_for_and_says_why_no_more(
    cluster: Cluster,
) -> None:
    make_quota(cluster, pods="2")
    cluster.store.create("deployments.apps", a_deployment(3))
    cluster.settle()
    assert len(cluster.pods()) == 2
    assert status_of(cluster.deployment(), "ReplicaFailure")
    (failed,) = [
        each
        for each in cluster.deployment()["status"]["conditions"]
        if each["type"] == "ReplicaFailure"
    ]
    assert (
        "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
        in (failed["message"])
    )


def test_a_quota_that_grows_lets_the_others_come(cluster: Cluster) -> None:
    make_quota(cluster, pods="2")
    cluster.store.create("deployments.apps", a_deployment(3))
    cluster.settle()

    def larger(draft: dict[str, Any]) -> None:
        draft["spec"]["hard"]["pods"] = "5"

    cluster.store.edit("resourcequotas", "default", "small", larger)
    cluster.settle()
    assert len(cluster.pods()) == 3
    assert not status_of(cluster.deployment(), "ReplicaFailure")


def test_what_pods_ask_for_is_counted_with_its_unit(cluster: Cluster) -> None:
    quota = make_quota(cluster, requests_cpu="2", pods="9")
    cluster.store.create("deployments.apps", a_deployment(3, template=asking("500m")))
    cluster.settle()
    used = {"requests.cpu": "1500m", "pods": "3"}
    assert quota_status(cluster.store, quota)["used"] == used
    pod = asking("600m") | {"metadata": {"name": "more", "namespace": "default"}}
    with pytest.raises(Refusal, match=r"requests\.cpu=600m, used: requests\.cpu=1500m"):
        refuse_beyond_quota(cluster.store, pod)
