"""A scaler asks for room before it changes anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.scaler import RefusalReason, ScaleOrder, ScaleRefused
from tests.cluster.scaling.played_kubernetes import (
    PlayedDeployments,
    budget,
    deployment,
    gpu_node,
    limit_range,
    pod_on,
    quota,
)

GPUS = "requests.nvidia.com/gpu"
LARGER = ScaleOrder(pool="decode", size=4)


@pytest.fixture
def api() -> PlayedDeployments:
    """Four GPUs on one node, three of them taken by the release."""
    played = PlayedDeployments(deployment("prefill", 1, gpus=1), deployment("decode", 2, gpus=1))
    played.get_ready()
    played.room.node_list = [gpu_node("a", 4)]
    placed = [pod_on("a", 1, pool=pool) for pool in ("prefill", "decode", "decode")]
    played.room.pod_list = [*placed]
    return played


def sizes(api: PlayedDeployments) -> list[int]:
    return [item["spec"]["replicas"] for item in api.items.values()]


@pytest.mark.parametrize("is_dry_run", [True, False])
async def test_what_quotas_and_gpus_do_not_allow_is_refused_together_and_nothing_is_patched(
    api: PlayedDeployments, is_dry_run: bool
) -> None:
    api.room.quota_list = [quota("gpus", {GPUS: "4"}, {GPUS: "3"})]
    with pytest.raises(ScaleRefused) as refusal:
        await KubernetesScaler(api, "chat").scale(replace(LARGER, is_dry_run=is_dry_run))
    assert refusal.value.reason is RefusalReason.QUOTA
    assert "quota gpus: 3 of 4" in refusal.value.message
    assert "1 of 4 nvidia.com/gpu are free, room for 1" in refusal.value.message
    assert sizes(api) == [1, 2]


async def test_pods_may_wait_for_nodes_and_never_for_a_quota(api: PlayedDeployments) -> None:
    scaler, waiting = KubernetesScaler(api, "chat"), replace(LARGER, may_wait=True)
    await scaler.scale(waiting)
    assert sizes(api) == [1, 4] and "nodes" not in api.room.asked
    api.room.quota_list = [quota("pods", {"pods": "6"}, {"pods": "5"})]
    with pytest.raises(ScaleRefused, match="quota pods"):
        await scaler.scale(replace(waiting, size=9))


async def test_pools_that_are_ordered_together_are_judged_together(
    api: PlayedDeployments,
) -> None:
    scaler = KubernetesScaler(api, "chat")
    one = ScaleOrder(pool="decode", size=3, is_dry_run=True)
    await scaler.scale(one)
    with pytest.raises(ScaleRefused, match="of decode have no node yet"):
        await scaler.scale(replace(one, beside=(("prefill", 2),)))


async def test_what_may_not_be_listed_is_said_and_does_not_refuse(api: PlayedDeployments) -> None:
    forbidden = {"nodes": "nodes is forbidden: cannot list", "resourcequotas": "no quotas"}
    api.room.forbidden = forbidden | {"limitranges": "no limits"}
    plan = await KubernetesScaler(api, "chat").scale(replace(LARGER, size=40))
    assert plan.unjudged == (
        "limit ranges: no limits",
        "quotas: no quotas",
        "GPUs of nodes: nodes is forbidden: cannot list",
    )
    assert api.room.asked == ["limitranges", "resourcequotas", "nodes"]


async def test_what_a_limit_range_gives_a_pod_counts_for_quotas_and_its_bounds_refuse(
    api: PlayedDeployments,
) -> None:
    scaler, smaller = KubernetesScaler(api, "chat"), replace(LARGER, size=3, is_dry_run=True)
    api.room.quota_list = [quota("cores", {"limits.cpu": "12"}, {"limits.cpu": "9"})]
    with pytest.raises(ScaleRefused, match="each container has to say limits.cpu"):
        await scaler.scale(smaller)
    api.room.limit_list = [limit_range("usual", {"default": {"cpu": "3"}})]
    await scaler.scale(smaller)
    with pytest.raises(ScaleRefused, match="ask for 6 more: room for 1"):
        await scaler.scale(replace(smaller, size=4))
    api.room.limit_list = [limit_range("small", {"max": {"nvidia.com/gpu": "0"}})]
    with pytest.raises(ScaleRefused, match="limit range small: a container of decode") as refusal:
        await scaler.scale(smaller)
    assert refusal.value.reason is RefusalReason.LIMITS and sizes(api) == [1, 2]


async def test_an_amount_that_is_none_is_said_and_does_not_refuse(api: PlayedDeployments) -> None:
    api.room.quota_list = [quota("odd", {"pods": "many"}, {})]
    plan = await KubernetesScaler(api, "chat").scale(replace(LARGER, size=3))
    assert plan.unjudged == ("quotas: 'many' is no amount of a resource",)


async def test_a_smaller_pool_asks_its_budgets_alone(api: PlayedDeployments) -> None:
    scaler, smaller = KubernetesScaler(api, "chat"), ScaleOrder(pool="decode", size=1)
    api.room.budget_list = [budget("chat-decode", "decode", minAvailable=2)]
    with pytest.raises(ScaleRefused, match="disruption budget chat-decode keeps 2") as refusal:
        await scaler.scale(smaller)
    assert refusal.value.reason is RefusalReason.DISRUPTION and sizes(api) == [1, 2]
    assert api.room.asked == ["poddisruptionbudgets"]
    api.room.budget_list = [budget("chat-decode", "decode", maxUnavailable=1)]
    await scaler.scale(smaller)
    assert sizes(api) == [1, 1]


async def test_what_was_judged_with_others_is_not_judged_again(api: PlayedDeployments) -> None:
    await KubernetesScaler(api, "chat").scale(replace(LARGER, size=9, skips_room=True))
    assert sizes(api) == [1, 9] and api.room.asked == []


async def test_the_same_size_asks_nobody(api: PlayedDeployments) -> None:
    plan = await KubernetesScaler(api, "chat").scale(ScaleOrder(pool="decode", size=2))
    assert plan.unjudged == () and api.room.asked == []


async def test_a_pool_without_gpus_asks_for_no_nodes() -> None:
    api = PlayedDeployments(deployment("prefill", 1), deployment("decode", 2))
    api.get_ready()
    await KubernetesScaler(api, "chat").scale(LARGER)
    assert api.room.asked == ["limitranges", "resourcequotas"]
