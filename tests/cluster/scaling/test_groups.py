"""Pools whose workers are groups of pods: counted, scaled, held, and not undone."""

from __future__ import annotations

import pytest

from cluster.scaling.groups import HELD_PARTITION
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.rollout import RolloutDeed, Rollouts
from cluster.scaling.scaler import RefusalReason, ScaleOrder, ScaleRefused
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment, group_set
from tests.cluster.scaling.test_rollout import carried_out

HIDDEN = 'leaderworkersets.leaderworkerset.x-k8s.io is forbidden: User "u" cannot list'


@pytest.fixture
def api() -> PlayedDeployments:
    played = PlayedDeployments(deployment("prefill", 1), group_set("decode", 2, size=3, gpus=8))
    played.get_ready()
    return played


async def test_a_group_is_one_worker_and_takes_the_gpus_of_all_its_pods(
    api: PlayedDeployments,
) -> None:
    scaler = KubernetesScaler(api, "chat")
    _, decode = await scaler.pools()
    assert (decode.name, decode.num_wanted, decode.num_ready, decode.problem) == (
        "decode",
        2,
        2,
        "",
    )
    plan = await scaler.scale(ScaleOrder(pool="decode", size=4))
    assert (plan.size_before, plan.size, plan.num_gpus) == (2, 4, 2 * 3 * 8)
    assert api.items["chat-decode"]["spec"]["replicas"] == 4


async def test_a_set_that_does_not_say_what_it_has_seen_is_believed(api: PlayedDeployments) -> None:
    del api.items["chat-decode"]["status"]["observedGeneration"]
    (state,) = await Rollouts(api, "chat").status("decode")
    assert state.is_done and state.num_updated == 2


async def test_a_rolling_update_of_groups_is_held_by_its_partition(api: PlayedDeployments) -> None:
    rollouts = Rollouts(api, "chat")
    await carried_out(api, RolloutDeed.PAUSE, None)
    (first, pausing), (second, holding) = api.patches
    assert (first, second) == ("chat-prefill", "chat-decode")
    assert pausing[0]["path"] == "/spec/paused"
    strategy = holding[0]["value"]
    rolling = strategy["rollingUpdateConfiguration"]
    assert rolling == {"maxUnavailable": 1, "maxSurge": 0, "partition": HELD_PARTITION}
    api.items["chat-decode"]["spec"]["rolloutStrategy"] = strategy
    assert [state.is_paused for state in await rollouts.status()] == [False, True]
    await carried_out(api, RolloutDeed.RESUME, "decode")
    assert api.patches[-1][1][0]["value"]["rollingUpdateConfiguration"]["partition"] == 0


async def test_a_held_set_that_grows_is_held_still(api: PlayedDeployments) -> None:
    rollouts = Rollouts(api, "chat")
    await carried_out(api, RolloutDeed.PAUSE, "decode")
    api.items["chat-decode"]["spec"]["rolloutStrategy"] = api.patches[-1][1][0]["value"]
    await KubernetesScaler(api, "chat").scale(ScaleOrder(pool="decode", size=7))
    (state,) = await rollouts.status("decode")
    assert state.is_paused


async def test_an_undo_that_would_reach_groups_is_refused_before_anything_moves(
    api: PlayedDeployments,
) -> None:
    with pytest.raises(ScaleRefused, match=r"decode: .*helm rollback"):
        await Rollouts(api, "chat").planned(RolloutDeed.UNDO, None)
    assert api.patches == []


async def test_a_pool_that_the_server_may_have_hidden_is_told_of_in_its_words(
    api: PlayedDeployments,
) -> None:
    del api.items["chat-decode"]
    api.hidden = HIDDEN
    await KubernetesScaler(api, "chat").scale(ScaleOrder(pool="prefill", size=2))
    for asked in (
        KubernetesScaler(api, "chat").scale(ScaleOrder(pool="decode", size=2)),
        Rollouts(api, "chat").status("decode"),
    ):
        with pytest.raises(ScaleRefused, match="cannot list") as refused:
            await asked
        assert refused.value.reason is RefusalReason.FORBIDDEN
