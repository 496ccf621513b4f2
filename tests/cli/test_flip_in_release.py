"""flip of a release whose pools an API server has: it judges a scale, and knows of no GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cli.exit_code import ExitCode
from cli.flip import flip
from cli.flip_plan import FlipRequest
from cluster.scaling.groups import Object
from cluster.scaling.kubernetes import COMPONENT_LABEL, KubernetesScaler
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment, pods_of

REQUEST = FlipRequest(
    worker_id="chat-prefill-h100-7d9f-x2",
    place="decode",
    is_agreed=True,
    waits=True,
    release="default/chat",
    deadline_s=0.0,
)


class Played(PlayedDeployments):
    """So many GPUs, of which each pod takes one: what has none stays pending, unsaid."""

    def __init__(self, *items: Object, num_gpus: int) -> None:
        super().__init__(*(dict(item) for item in items))
        self._num_gpus = num_gpus
        self.pods = pods_of("prefill-h100", "x1", "x2")
        self.asked: list[tuple[str, int]] = []
        self.get_ready()

    async def patch_scale(self, pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        await super().patch_scale(pool, replicas, is_dry_run=is_dry_run)
        if is_dry_run:
            return
        self.asked.append((pool["metadata"]["name"], replicas))
        self.get_ready()
        num_short = sum(item["spec"]["replicas"] for item in self.items.values()) - self._num_gpus
        self.items[pool["metadata"]["name"]]["status"]["readyReplicas"] -= max(0, num_short)


def release(num_gpus: int, *others: str) -> Played:
    pools = [deployment("prefill-h100", 2), deployment("decode-h100", 1)]
    pools += [deployment(name, 1) for name in others]
    for pool in pools:
        role = pool["metadata"]["labels"]["splitserve/pool"].partition("-")[0]
        pool["metadata"]["labels"][COMPONENT_LABEL] = f"{role}-worker"
    return Played(*pools, num_gpus=num_gpus)


async def nobody(starting: Sequence[str]) -> bool:
    """The pod does it itself."""
    return False


async def flipped(api: Played, request: FlipRequest) -> ExitCode:
    return await flip(KubernetesScaler(api, "chat"), request, nobody)


@pytest.mark.parametrize("place", ["decode", "decode-h100"])
async def test_pools_are_known_by_their_role_and_by_their_name(place: str) -> None:
    api = release(4)
    assert await flipped(api, replace(REQUEST, place=place)) is ExitCode.OK
    assert api.asked == [("chat-decode-h100", 2), ("chat-prefill-h100", 1)]
    assert "deletionTimestamp" in api.pods["chat-prefill-h100-7d9f-x2"]["metadata"]


async def test_where_all_gpus_are_in_use_nothing_stays_pending_and_one_by_one_is_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = release(3)
    assert await flipped(api, REQUEST) is ExitCode.FAILED
    assert api.asked == [("chat-decode-h100", 2), ("chat-decode-h100", 1)]
    assert all("deletionTimestamp" not in pod["metadata"] for pod in api.pods.values())
    said = " ".join(capsys.readouterr().err.split())
    assert "decode-h100 is to have 1 again" in said
    assert "flip chat-prefill-h100-7d9f-x2 decode --one-by-one --kubernetes default/chat" in said


async def test_one_by_one_needs_no_gpu_more() -> None:
    api = release(3)
    assert await flipped(api, replace(REQUEST, goes_first=True)) is ExitCode.OK
    assert api.asked == [("chat-prefill-h100", 1), ("chat-decode-h100", 2)]


@pytest.mark.parametrize(
    ("others", "request_", "says"),
    [
        (["decode-a100"], REQUEST, "decode-h100, decode-a100 are pools of decode workers"),
        ([], replace(REQUEST, place="prefill"), "is a prefill worker already"),
        ([], replace(REQUEST, place="decod"), "'decod' is no pool and no role"),
        ([], replace(REQUEST, worker_id="chat-router-0"), "is no worker of this release"),
    ],
)
async def test_what_is_not_clear_is_refused_by_name(
    others: list[str], request_: FlipRequest, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api = release(9, *others)
    assert await flipped(api, request_) is ExitCode.REFUSED
    assert says in " ".join(capsys.readouterr().err.split()) and api.asked == []


async def test_a_pool_that_is_called_as_another_begins_keeps_its_workers() -> None:
    api = release(9, "prefill")
    assert await flipped(api, REQUEST) is ExitCode.OK
    assert api.asked[-1] == ("chat-prefill-h100", 1)
