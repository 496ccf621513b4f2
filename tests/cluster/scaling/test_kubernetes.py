"""The pools of a release, as Deployments say them, and what is asked of the API server."""

from __future__ import annotations

import asyncio

import pytest

from cluster.deadline import Deadline
from cluster.errors import WorkerLost
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_call import refused
from cluster.scaling.scaler import (
    NotSettled,
    RefusalReason,
    ScaleOrder,
    ScaleRefused,
    wait_until_ready,
)
from cluster.scaling.wire import plan_from_wire
from protos import membership_pb2
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment
from tests.virtual_time import VirtualTime


@pytest.fixture
def api() -> PlayedDeployments:
    played = PlayedDeployments(deployment("prefill", 1, gpus=2), deployment("decode", 3))
    played.get_ready()
    return played


async def test_a_pool_is_a_deployment_and_its_ready_pods(api: PlayedDeployments) -> None:
    prefill, decode = await KubernetesScaler(api, "chat").pools()
    assert (prefill.name, prefill.num_wanted, prefill.num_ready) == ("prefill", 1, 1)
    assert decode.is_settled and decode.num_present == 3


async def test_a_change_goes_to_the_scale_of_its_deployment_and_tells_its_gpus(
    api: PlayedDeployments,
) -> None:
    plan = await KubernetesScaler(api, "chat").scale(ScaleOrder(pool="prefill", size=4))
    assert (plan.size_before, plan.size, plan.num_gpus) == (1, 4, 6)
    assert api.items["chat-prefill"]["spec"]["replicas"] == 4
    assert api.patches == []


async def test_a_dry_run_is_the_servers_own_and_changes_nothing(api: PlayedDeployments) -> None:
    scaler = KubernetesScaler(api, "chat")
    await scaler.scale(ScaleOrder(pool="prefill", size=4, is_dry_run=True))
    assert api.items["chat-prefill"]["spec"]["replicas"] == 1
    api.refuses_with = refused(403, 'deployments.apps "chat-prefill" is forbidden: cannot patch')
    with pytest.raises(ScaleRefused, match="cannot patch") as failure:
        await scaler.scale(ScaleOrder(pool="prefill", size=4, is_dry_run=True))
    assert failure.value.reason is RefusalReason.FORBIDDEN


async def test_no_pool_and_no_worker_are_refused_before_the_server_is_asked(
    api: PlayedDeployments,
) -> None:
    scaler = KubernetesScaler(api, "chat")
    for order, reason in (
        (ScaleOrder(pool="encode", size=1), RefusalReason.NO_SUCH_POOL),
        (ScaleOrder(pool="decode", size=0), RefusalReason.BELOW_ONE),
    ):
        with pytest.raises(ScaleRefused) as failure:
            await scaler.scale(order)
        assert failure.value.reason is reason


async def test_a_quota_that_forbids_a_pod_ends_the_wait_with_the_servers_words(
    api: PlayedDeployments,
) -> None:
    scaler, time = KubernetesScaler(api, "chat"), VirtualTime()
    await scaler.scale(ScaleOrder(pool="decode", size=9))
    api.items["chat-decode"]["status"]["observedGeneration"] = 2
    api.items["chat-decode"]["status"]["conditions"] = [
        {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"},
        {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"},
    ]
    with pytest.raises(NotSettled, match="exceeded quota"):
        await wait_until_ready(scaler, {"decode": 9}, Deadline.after(60, time), time.sleep)


async def test_what_stood_in_the_way_of_the_size_before_does_not_end_the_wait_for_the_new_one(
    api: PlayedDeployments,
) -> None:
    scaler, time = KubernetesScaler(api, "chat"), VirtualTime()
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota, yesterday"}
    api.items["chat-decode"]["status"]["conditions"] = [failed]
    await scaler.scale(ScaleOrder(pool="decode", size=9))
    waiting = asyncio.create_task(
        wait_until_ready(scaler, {"decode": 9}, Deadline.after(60, time), time.sleep)
    )
    await time.advance(5.0)
    assert not waiting.done()
    api.get_ready()
    await time.advance(5.0)
    await waiting


async def test_a_wait_ends_when_pods_are_ready_or_its_deadline_has_passed(
    api: PlayedDeployments,
) -> None:
    scaler = KubernetesScaler(api, "chat")
    await scaler.scale(ScaleOrder(pool="decode", size=2))
    time = VirtualTime()
    passed = Deadline.after(0.0, time)
    with pytest.raises(NotSettled, match="decode 3 of 2"):
        await wait_until_ready(scaler, {"decode": 2}, passed, time.sleep)
    api.get_ready()
    await wait_until_ready(scaler, {"decode": 2}, passed, time.sleep)


@pytest.mark.parametrize(
    ("status", "words", "reason"),
    [
        (403, "pods is forbidden: exceeded quota: gpus", RefusalReason.QUOTA),
        (403, 'cannot patch resource "deployments/scale"', RefusalReason.FORBIDDEN),
        (404, "not found", RefusalReason.NO_SUCH_POOL),
        (409, "the object has been modified", RefusalReason.CHANGING),
        (429, "would violate the pod's disruption budget", RefusalReason.DISRUPTION),
        (422, "the server rejected our request", RefusalReason.CHANGING),
        (400, "is invalid", RefusalReason.OPTIONS),
    ],
)
def test_an_answer_of_the_server_is_a_reason_with_its_words(
    status: int, words: str, reason: RefusalReason
) -> None:
    refusal = refused(status, words)
    assert isinstance(refusal, ScaleRefused)
    assert (refusal.reason, refusal.message) == (reason, words)


@pytest.mark.parametrize("status", [None, 500, 503])
def test_a_server_that_is_not_well_has_refused_nothing(status: int | None) -> None:
    lost = refused(status, "etcd is away")
    assert isinstance(lost, WorkerLost) and "etcd is away" in lost.message


def test_a_reason_of_a_newer_supervisor_is_a_refusal_with_its_words() -> None:
    answer = membership_pb2.ScaleAnswer(reason="eclipse", message="the moon is in the way")
    with pytest.raises(ScaleRefused, match="the moon") as refusal:
        plan_from_wire(answer)
    assert refusal.value.reason is RefusalReason.OPTIONS
