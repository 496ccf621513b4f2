"""Rolling updates of a release's pools."""

from __future__ import annotations

import pytest

from cluster.scaling.rollout import RolloutChange, RolloutDeed, Rollouts, skew_of
from cluster.scaling.scaler import ScaleRefused
from tests.cluster.scaling.played_kubernetes import (
    PlayedDeployments,
    deployment,
    loaded_pod,
    replica_set,
)


@pytest.fixture
def api() -> PlayedDeployments:
    played = PlayedDeployments(
        deployment("prefill", 2, revision=3), deployment("decode", 4, revision=2)
    )
    played.get_ready()
    return played


async def test_pools_that_are_done_are_together(api: PlayedDeployments) -> None:
    states = await Rollouts(api, "chat").status()
    assert all(state.is_done for state in states) and skew_of(states) == 0.0


async def test_one_pool_ahead_of_the_other_is_a_skew(api: PlayedDeployments) -> None:
    api.items["chat-decode"]["status"] |= {"updatedReplicas": 1, "readyReplicas": 3}
    prefill, decode = states = await Rollouts(api, "chat").status()
    assert (decode.num_updated, decode.num_old, decode.num_ready) == (1, 3, 3)
    assert prefill.is_done and not decode.is_done and skew_of(states) == 0.75


async def test_pods_that_are_loaded_and_not_ready_wait_and_others_do_not(
    api: PlayedDeployments,
) -> None:
    ending = loaded_pod("decode", "d")
    ending["chat-decode-7d9f-d"]["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"
    api.pods = {
        **loaded_pod("decode", "a"),
        **loaded_pod("decode", "b", is_ready=True),
        **loaded_pod("decode", "c", is_started=False),
        **ending,
    }
    prefill, decode = await Rollouts(api, "chat").status()
    assert (prefill.num_waiting, decode.num_waiting) == (0, 1)
    api.hides_pods = True
    assert [state.num_waiting for state in await Rollouts(api, "chat").status()] == [None, None]


async def test_a_change_that_the_server_has_not_looked_at_is_not_done(
    api: PlayedDeployments,
) -> None:
    api.items["chat-prefill"]["metadata"]["generation"] = 2
    (prefill,) = await Rollouts(api, "chat").status("prefill")
    assert not prefill.is_done and prefill.num_updated == 0


async def carried_out(
    api: PlayedDeployments, deed: RolloutDeed, pool: str | None
) -> list[RolloutChange]:
    rollouts = Rollouts(api, "chat")
    plans = await rollouts.planned(deed, pool)
    for plan in plans:
        await rollouts.carry_out(plan)
    return [plan.change for plan in plans]


async def test_one_pool_or_all_are_held_and_go_on(api: PlayedDeployments) -> None:
    (decode,) = await carried_out(api, RolloutDeed.PAUSE, "decode")
    assert (decode.pool, decode.is_paused, decode.is_idle) == ("decode", False, False)
    both = await carried_out(api, RolloutDeed.RESUME, None)
    assert [(change.pool, change.is_idle) for change in both] == [
        ("prefill", True),
        ("decode", True),
    ]
    held, *_ = api.patches
    assert held == ("chat-decode", [{"op": "add", "path": "/spec/paused", "value": True}])


async def test_what_is_planned_or_judged_changes_nothing(api: PlayedDeployments) -> None:
    rollouts = Rollouts(api, "chat")
    (plan,) = await rollouts.planned(RolloutDeed.PAUSE, "decode")
    await rollouts.carry_out(plan, is_dry_run=True)
    assert api.patches == []


async def test_undo_brings_the_template_before_if_nobody_was_faster(
    api: PlayedDeployments,
) -> None:
    now = api.items["chat-prefill"]["spec"]["template"]["spec"]
    now["containers"] = [{"image": "worker:3"}]
    api.sets = [
        replica_set("prefill", 1, "worker:1"),
        replica_set("prefill", 2, "worker:2"),
        replica_set("prefill", 3, "worker:3"),
        replica_set("decode", 1, "worker:9"),
    ]
    (change,) = await carried_out(api, RolloutDeed.UNDO, "prefill")
    assert (change.revision, change.revision_after) == (3, 2)
    assert change.differences == ("containers.0.image: worker:3 -> worker:2",)
    ((name, (test, replace)),) = api.patches
    assert name == "chat-prefill" and (test["path"], test["value"]) == ("/metadata/generation", 1)
    assert replace["value"]["spec"]["containers"][0]["image"] == "worker:2"
    assert replace["value"]["metadata"]["labels"] == {"splitserve/pool": "prefill"}


async def test_where_one_pool_has_nothing_before_it_none_is_changed(
    api: PlayedDeployments,
) -> None:
    api.sets = [replica_set("prefill", 2, "worker:2")]
    with pytest.raises(ScaleRefused, match="decode has no revision before 2"):
        await Rollouts(api, "chat").planned(RolloutDeed.UNDO, None)
    assert api.patches == []


async def test_a_pool_that_is_not_there_is_refused_with_those_that_are(
    api: PlayedDeployments,
) -> None:
    with pytest.raises(ScaleRefused, match="there are: prefill, decode"):
        await Rollouts(api, "chat").status("encode")
