"""A release that is served: started, watched, and put back as it was."""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import LoginLost, WorkerLost
from cluster.scaling.kubernetes_call import refused
from cluster.scaling.login_patience import PATIENCE_S
from cluster.scaling.scaler import ScaleRefused
from cluster.supervisor.child import StartFailed
from cluster.supervisor.release.news import (
    PodGone,
    PodLoads,
    PodRestarted,
    PodServes,
    PoolSized,
)
from tests.cluster.scaling.played_kubernetes import quota
from tests.cluster.supervisor.release.played_release import PlayedRelease, a_pod, ready


@pytest.fixture
def release() -> PlayedRelease:
    return PlayedRelease()


async def test_pools_without_workers_are_started_and_go_back_to_none(
    release: PlayedRelease,
) -> None:
    served = release.served(decode=2)
    starting = asyncio.create_task(served.start())
    await release.time.advance(3.0)
    assert release.sizes() == {"prefill": 1, "decode": 2} and not starting.done()
    release.api.get_ready()
    await release.time.advance(1.0)
    await starting
    assert served.sizes_at_the_end == {"prefill": 0, "decode": 0}
    await release.stop(served)
    assert release.sizes() == {"prefill": 0, "decode": 0}
    assert PoolSized("decode", 0, 2) in release.told and PoolSized("decode", 2, 0) in release.told


async def test_a_pool_that_was_there_is_watched_and_left_as_it_was() -> None:
    release = PlayedRelease(prefill=1, decode=4)
    served = release.served()
    await served.start()
    await release.stop(served)
    assert release.sizes() == {"prefill": 1, "decode": 4} and not served.sizes_at_the_end


async def test_a_size_that_somebody_else_has_given_meanwhile_stays() -> None:
    release = PlayedRelease(prefill=1, decode=1)
    served = release.served(decode=3)
    starting = asyncio.create_task(served.start())
    await release.time.advance(0.0)
    release.api.items["chat-decode"]["spec"]["replicas"] = 6
    release.api.get_ready()
    await release.time.advance(1.0)
    await starting
    await release.stop(served)
    assert release.sizes()["decode"] == 6
    assert any("decode is left at 6" in text for text in release.remarks())


async def test_a_refused_start_changes_nothing(release: PlayedRelease) -> None:
    release.api.refuses_with = refused(403, "cannot patch resource deployments/scale")
    served = release.served()
    with pytest.raises(ScaleRefused, match="cannot patch"):
        await served.start()
    assert release.sizes() == {"prefill": 0, "decode": 0} and not served.sizes_at_the_end


async def test_where_the_second_pool_is_refused_the_first_goes_back(
    release: PlayedRelease,
) -> None:
    served = release.served()
    patch = release.api.patch_scale

    async def refusing(pool, replicas, *, is_dry_run):
        if not is_dry_run and pool["metadata"]["name"] == "chat-decode" and replicas:
            raise refused(403, "exceeded quota: pods")
        await patch(pool, replicas, is_dry_run=is_dry_run)

    release.api.patch_scale = refusing
    with pytest.raises(ScaleRefused, match="exceeded quota"):
        await served.start()
    assert release.sizes()["prefill"] == 1
    await release.stop(served)
    assert release.sizes() == {"prefill": 0, "decode": 0}


async def test_a_pool_that_cannot_get_its_pods_fails_the_start_with_the_clusters_words(
    release: PlayedRelease,
) -> None:
    served = release.served(decode=2)
    starting = asyncio.create_task(served.start())
    await release.time.advance(0.0)
    item = release.api.items["chat-decode"]
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
    item["status"] = {"observedGeneration": item["metadata"]["generation"], "conditions": [failed]}
    await release.time.advance(1.0)
    with pytest.raises(StartFailed, match="exceeded quota: gpus"):
        await starting
    await release.stop(served)
    assert release.sizes() == {"prefill": 0, "decode": 0}


async def test_a_start_waits_for_a_router_and_says_so_once() -> None:
    release = PlayedRelease(prefill=1, decode=1)
    release.api.routers = [{"spec": {"replicas": 2}, "status": {}}]
    starting = asyncio.create_task(release.served().start())
    await release.time.advance(5.0)
    assert not starting.done()
    assert release.remarks() == ["no router is ready yet, of 2"]
    release.api.routers = [{"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}]
    await release.time.advance(1.0)
    await starting


async def test_a_server_that_is_away_is_said_once_and_the_watch_goes_on() -> None:
    release = PlayedRelease(prefill=1, decode=1)
    served = release.served()
    await served.start()
    watching = asyncio.create_task(served.until_lost())
    for is_silent in (True, False, True):
        release.api.is_silent = is_silent
        await release.time.advance(5.0)
    assert len(release.remarks()) == 2 and not watching.done()
    release.api.is_silent = False
    release.api.items.clear()
    await release.time.advance(2.0)
    failure = await watching
    assert (failure.name, failure.how) == ("release chat", "gone")


async def test_a_start_whose_login_has_ended_ends_when_nobody_logs_in_again(
    release: PlayedRelease,
) -> None:
    served = release.served(decode=2)
    starting = asyncio.create_task(served.start())
    await release.time.advance(3.0)
    release.api.knows_who_asks = False
    await release.time.advance(30.0)
    release.api.knows_who_asks = True
    await release.time.advance(5.0)
    release.api.knows_who_asks = False
    await release.time.advance(PATIENCE_S - 1.0)
    assert not starting.done(), "somebody had logged in: it counts from then"
    await release.time.advance(3.0)
    with pytest.raises(LoginLost, match="does not know who asks"):
        await starting
    await release.stop(served)
    assert any("decode may be left at 2" in text for text in release.remarks())


async def test_what_serves_is_watched_on_without_a_login() -> None:
    release = PlayedRelease(prefill=1, decode=1)
    served = release.served()
    await served.start()
    watching = asyncio.create_task(served.until_lost())
    release.api.knows_who_asks = False
    await release.time.advance(3600.0)
    assert not watching.done() and len(release.remarks()) == 1
    watching.cancel()


async def test_where_nobody_answers_at_the_end_what_is_left_is_said(
    release: PlayedRelease,
) -> None:
    served = release.served()
    release.api.routers = []
    starting = asyncio.create_task(served.start())
    await release.time.advance(0.0)
    release.api.get_ready()
    await release.time.advance(1.0)
    await starting
    release.api.is_silent = True
    await release.stop(served)
    assert [text.partition(":")[0] for text in release.remarks()] == [
        "prefill may be left at 1",
        "decode may be left at 1",
    ]


async def test_pods_are_told_from_their_first_phase_to_their_end() -> None:
    release = PlayedRelease(prefill=1, decode=1)
    name = "chat-decode-7d9f-aa"
    loading = {"state": {"running": {}}, "started": False, "restartCount": 0}
    release.api.pods[name] = a_pod("decode", "aa", containerStatuses=[loading])
    served = release.served()
    await served.start()
    watching = asyncio.create_task(served.until_lost())
    release.api.pods[name] = a_pod("decode", "aa", conditions=ready())
    await release.time.advance(1.0)
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    again = loading | {"restartCount": 1, "lastState": ended}
    release.api.pods[name] = a_pod("decode", "aa", containerStatuses=[again])
    await release.time.advance(1.0)
    release.api.pods.clear()
    await release.time.advance(1.0)
    told = [piece for piece in release.told if getattr(piece, "name", "") == name]
    assert told == [
        PodLoads(name, "loads its model"),
        PodServes(name, "node-1"),
        PodRestarted(name, "OOMKilled, signal SIGKILL"),
        PodLoads(name, "loads its model"),
        PodGone(name),
    ]
    watching.cancel()


async def test_the_end_waits_for_pods_that_drain_unless_an_operator_insists(
    release: PlayedRelease,
) -> None:
    served = release.served()
    starting = asyncio.create_task(served.start())
    await release.time.advance(0.0)
    release.api.get_ready()
    await release.time.advance(1.0)
    await starting
    draining = a_pod("decode", "aa", conditions=ready())
    draining["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"
    release.api.pods = {"chat-decode-7d9f-aa": draining}
    release.api.get_ready()
    stopping = asyncio.create_task(served.stop())
    await release.time.advance(5.0)
    release.api.get_ready()
    await release.time.advance(5.0)
    assert release.sizes()["decode"] == 0 and not stopping.done()
    served.kill()
    await release.time.advance(1.0)
    await stopping


async def test_a_release_without_pools_is_refused(release: PlayedRelease) -> None:
    release.api.items.clear()
    with pytest.raises(ScaleRefused, match="chat has no pools in this namespace"):
        await release.served().start()


async def test_what_there_is_no_room_for_is_refused_for_all_pools_together(
    release: PlayedRelease,
) -> None:
    release.api.room.quota_list = [quota("small", {"pods": "2"}, {"pods": "0"})]
    with pytest.raises(ScaleRefused, match="quota small"):
        await release.served(decode=2).start()
    assert release.sizes() == {"prefill": 0, "decode": 0}


async def test_a_server_that_does_not_answer_at_the_start_is_told(release: PlayedRelease) -> None:
    release.api.is_silent = True
    with pytest.raises(WorkerLost):
        await release.served().start()
