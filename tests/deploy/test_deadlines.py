"""How long an installation waits, and for what: a node, an image, a model, a start."""

from __future__ import annotations

import pytest

from cluster.scaling.kubernetes import pool_state
from tests.deploy.chart import Manifest, rendered
from tests.deploy.test_notes_and_test_pods import notes

_ON_GPUS: Manifest = {"worker": {"gpus": {"count": 1}}}


@pytest.mark.parametrize(
    ("values", "minutes"),
    [
        ({}, 2 + 5 + 30),
        (_ON_GPUS, 2 + 30 + 30),
        ({"worker": {"imageMinutes": 90}}, 2 + 90 + 30),
        ({"worker": {"imageMinutes": 0, "startupMinutes": 10}}, 2 + 10),
    ],
)
def test_a_pool_s_deadline_has_room_for_a_node_and_its_image(
    values: Manifest, minutes: int
) -> None:
    deployments = rendered(values).kind("Deployment")
    assert deployments["demo-decode"]["spec"]["progressDeadlineSeconds"] == 60 * minutes
    assert deployments["demo-router"]["spec"]["progressDeadlineSeconds"] == 60 * minutes
    assert f"--timeout {60 * minutes}s" in notes(values)


def test_all_wait_for_the_pool_that_takes_longest() -> None:
    pools = {"prefill": {"startupMinutes": 40}, "decode": {"gpus": {"count": 1}}}
    deployments = rendered({"pools": pools}).kind("Deployment")
    limits = {name: each["spec"]["progressDeadlineSeconds"] for name, each in deployments.items()}
    assert limits == dict.fromkeys(("demo-prefill", "demo-decode", "demo-router"), 62 * 60)


def test_pools_of_both_kinds_say_it_to_whoever_waits_for_them() -> None:
    group = {"hosts": 2, "gpus": {"count": 8}, "options": {"tensorParallelSize": 16}}
    release = rendered({"pools": {"prefill": group, "decode": {}}})
    pools = release.kind("LeaderWorkerSet") | release.kind("Deployment")
    assert [pools[f"demo-{pool}"]["kind"] for pool in ("prefill", "decode")] == [
        "LeaderWorkerSet",
        "Deployment",
    ]
    for pool in ("prefill", "decode"):
        assert pool_state(pools[f"demo-{pool}"]).start_limit_s == 62 * 60
    del pools["demo-decode"]["spec"]["progressDeadlineSeconds"]
    assert pool_state(pools["demo-decode"]).start_limit_s == 62 * 60


def test_a_container_s_start_has_no_more_time_for_its_image() -> None:
    (container,) = rendered(_ON_GPUS).pods["demo-decode"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == 30 * 60


def test_the_warm_up_has_a_time_of_its_own() -> None:
    cache: Manifest = {"claim": "models", "warmUp": True}
    job = rendered({"model": {"cache": cache}}).kind("Job")["demo-warm-up"]
    assert job["spec"]["activeDeadlineSeconds"] == 3 * 60 * 60
    values: Manifest = {
        "worker": {"startupMinutes": 5},
        "model": {"cache": {**cache, "warmUpMinutes": 600}},
    }
    job = rendered(values).kind("Job")["demo-warm-up"]
    assert job["spec"]["activeDeadlineSeconds"] == 10 * 60 * 60


def test_a_pod_that_is_not_ready_keeps_no_node_from_being_drained() -> None:
    budgets = rendered().kind("PodDisruptionBudget")
    assert budgets.keys() == {"demo-router", "demo-prefill", "demo-decode"}
    policies = {each["spec"]["unhealthyPodEvictionPolicy"] for each in budgets.values()}
    assert policies == {"AlwaysAllow"}
