"""Limit ranges of a namespace: pods are filled in, and held to them, whoever makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mini_cluster.limit_ranges import admit_pod
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.test_controllers import Cluster, a_deployment, template
from tests.mini_cluster.test_quotas import make_quota


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.loopback.close()


def make_range(cluster: Cluster, **item: Any) -> None:
    metadata = {"name": "usual", "namespace": "default"}
    spec = {"limits": [{"type": "Container", **item}]}
    cluster.store.create("limitranges", {"metadata": metadata, "spec": spec})


def pod(**resources: Any) -> dict[str, Any]:
    made = template("first") | {"metadata": {"name": "one", "namespace": "default"}}
    made["spec"]["containers"][0]["resources"] = resources
    return made


def test_a_pod_of_a_deployment_has_what_its_namespace_gives(cluster: Cluster) -> None:
    make_range(cluster, default={"cpu": "2"}, defaultRequest={"cpu": "1", "memory": "1Gi"})
    cluster.store.create("deployments.apps", a_deployment(1))
    cluster.settle()
    (made,) = cluster.pods()
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }


def test_a_pod_past_a_bound_is_refused_in_the_words_of_the_real_one(cluster: Cluster) -> None:
    make_range(cluster, max={"memory": "2Gi"})
    said = "maximum memory usage per Container is 2Gi, but limit is 4Gi"
    with pytest.raises(Refusal, match=f'pods "one" is forbidden: {said}'):
        admit_pod(cluster.store, pod(limits={"memory": "4Gi"}))


def test_a_quota_of_limits_refuses_who_says_none_and_counts_what_is_filled_in(
    cluster: Cluster,
) -> None:
    make_quota(cluster, limits_cpu="3")
    said = r"failed quota: small: must specify limits\.cpu for: "
    with pytest.raises(Refusal, match=said):
        admit_pod(cluster.store, pod())
    make_range(cluster, default={"cpu": "4"})
    with pytest.raises(Refusal, match=r"exceeded quota: small, requested: limits\.cpu=4"):
        admit_pod(cluster.store, pod())
