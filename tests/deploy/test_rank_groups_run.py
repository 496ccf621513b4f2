"""A worker whose ranks are in two pods, on a cluster that runs them: Ray, a token, and losses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.chart import Manifest
from tests.deploy.load import load
from tests.deploy.release import NAME, VALUES, Release, model_cache
from tests.deploy.test_release import containers, everything, uninstall
from tests.fleet.support import wait_for
from tests.mini_cluster.children import is_going, is_ready
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object
from tests.mini_cluster.leader_worker_definition import LEADER_WORKER_SETS
from tests.mini_cluster.machine import running_cluster

pytest.importorskip("ray", reason="an extra")
pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(900)]
GROUP = (f"{NAME}-decode-0", f"{NAME}-decode-0-1")
WITHIN_S = 300.0
ONE_MORE = {"role": "decode"}
"""A decode worker of one rank, which serves while a group is made anew."""
OF_TWO_HOSTS = {"hosts": 2, "options": {"tensorParallelSize": 2}}
CAPITAL = "The capital of France is Paris."
"""Of SmolLM2, greedily, in fp32: whatever number of ranks computes it."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MiniCluster]:
    """One that knows LeaderWorkerSets."""
    with running_cluster(tmp_path, model_cache()) as made:
        made.call(
            lambda: made.store.create(
                "customresourcedefinitions.apiextensions.k8s.io", LEADER_WORKER_SETS
            )
        )
        yield made


async def answer(client: httpx.AsyncClient) -> str:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    question = {"model": "smollm2", "messages": messages, "max_tokens": 24, "temperature": 0}
    reply = await client.post("/v1/chat/completions", json=question)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def pods_of_the_group(cluster: MiniCluster) -> dict[str, Object]:
    found = cluster.call(lambda: cluster.store.select("pods", "default"))
    return {pod["metadata"]["name"]: pod for pod in found if pod["metadata"]["name"] in GROUP}


def until(cluster: MiniCluster, holds: Callable[[dict[str, Object]], Any], what: str) -> None:
    wait_for(lambda: holds(pods_of_the_group(cluster)), timeout_s=WITHIN_S, what=what)


def uids(cluster: MiniCluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods_of_the_group(cluster).values()}


def are_ready(pods: dict[str, Object]) -> bool:
    return len(pods) == 2 and all(is_ready(pod) and not is_going(pod) for pod in pods.values())


def kill_container(pod: str) -> None:
    """Its processes end at once, as where memory is gone."""
    (found,) = (each for each in containers() if f'"hostname": "{pod}"' in " ".join(each.cmdline()))
    found.kill()


async def test_a_group_of_two_pods_answers_as_one_does_and_is_made_anew_when_a_follower_is_lost(
    cluster: MiniCluster,
) -> None:
    before = everything(cluster)
    release = Release(cluster)
    pools: Manifest = {"prefill": None, "decode": OF_TWO_HOSTS}
    release.install(VALUES | {"pools": pools})
    until(cluster, are_ready, "both pods of the group")
    async with release.client() as client:
        assert await answer(client) == CAPITAL
    log = cluster.kubectl("logs", GROUP[0])
    (placed,) = (line for line in log.splitlines() if "ranks have their places" in line)
    assert all(pod in placed for pod in GROUP)

    release.upgrade(VALUES | {"pools": pools | {"decode-one": ONE_MORE}})
    old = uids(cluster)
    async with load(release) as clients:
        await asyncio.to_thread(kill_container, GROUP[1])
        await asyncio.to_thread(
            until,
            cluster,
            lambda pods: are_ready(pods) and not old & uids(cluster),
            "another group",
        )
        right = clients.num_right
        while clients.num_right < right + 4 and not clients.wrong:
            await asyncio.sleep(0.1)
    uninstall(cluster, before)
