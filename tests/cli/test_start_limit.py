"""How long `scale --wait` and `flip` wait where nobody says it: as long as a start may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

import cli.flip
import cli.scale
from cli.exit_code import ExitCode
from cli.flip_plan import FlipRequest
from cli.scale import ScaleRequest
from cluster.deadline import Deadline, Sleep
from cluster.scaling.kubernetes import (
    COMPONENT_LABEL,
    START_LIMIT,
    KubernetesScaler,
    pool_state,
)
from cluster.scaling.scaler import PoolState, Scaler, start_limit_of
from tests.cluster.scaling.played_kubernetes import (
    PlayedDeployments,
    deployment,
    group_set,
    pods_of,
)

OF_CHART_S = 3720.0
"""An image and a start by the chart's values: 30 minutes each, and 2 beside."""


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were left when a wait began, rounded to minutes."""
    found: list[float] = []

    async def wait(scaler: Scaler, sizes: Mapping[str, int], until: Deadline, _: Sleep) -> None:
        found.append(round(until.remaining_s / 60) * 60.0)

    monkeypatch.setattr(cli.scale, "wait_until_ready", wait)
    monkeypatch.setattr(cli.flip, "wait_until_ready", wait)
    return found


def release(limit_s: float | None) -> KubernetesScaler:
    pools = [deployment("prefill", 2), deployment("decode", 2)]
    for pool in pools:
        role = pool["metadata"]["labels"]["splitserve/pool"]
        pool["metadata"]["labels"][COMPONENT_LABEL] = f"{role}-worker"
    if limit_s is not None:
        pools[0]["spec"]["progressDeadlineSeconds"] = int(limit_s)
    api = PlayedDeployments(*pools)
    api.pods = pods_of("prefill", "x1", "x2")
    api.get_ready()
    return KubernetesScaler(api, "chat")


CASES = pytest.mark.parametrize(
    ("of_release", "said", "limit_s"),
    [(OF_CHART_S, None, OF_CHART_S), (OF_CHART_S, 120.0, 120.0), (None, None, 600.0)],
)


@CASES
async def test_a_wait_for_sizes_lasts_as_long_as_the_release_gives_a_start(
    of_release: float | None, said: float | None, limit_s: float, waited: list[float]
) -> None:
    request = ScaleRequest(sizes={"decode": 3}, waits=True, is_agreed=True, deadline_s=said)
    assert await cli.scale.scale(release(of_release), request) is ExitCode.OK
    assert waited == [limit_s]


@CASES
async def test_and_so_does_a_flip(
    of_release: float | None, said: float | None, limit_s: float, waited: list[float]
) -> None:
    async def nobody(starting: Sequence[str]) -> bool:
        return False

    request = FlipRequest(
        worker_id="chat-prefill-7d9f-x2",
        place="decode",
        is_agreed=True,
        deadline_s=said,
        release="default/chat",
    )
    assert await cli.flip.flip(release(of_release), request, nobody) is ExitCode.OK
    assert waited == [limit_s]


async def test_a_release_of_groups_alone_says_it_by_the_charts_annotation(
    waited: list[float],
) -> None:
    pool = group_set("decode", 2, size=2, gpus=8)
    pool["metadata"]["annotations"][START_LIMIT] = str(int(OF_CHART_S))
    scaler = KubernetesScaler(PlayedDeployments(pool), "chat")
    request = ScaleRequest(sizes={"decode": 3}, waits=True, is_agreed=True)
    assert await cli.scale.scale(scaler, request) is ExitCode.OK
    assert waited == [OF_CHART_S]


@pytest.mark.parametrize(("said", "limit_s"), [("3720", 3720.0), ("soon", 600.0), ("", 600.0)])
def test_the_annotation_comes_first_and_what_is_no_number_says_nothing(
    said: str, limit_s: float
) -> None:
    pool = deployment("decode", 1)
    pool["spec"]["progressDeadlineSeconds"] = 600
    pool["metadata"]["annotations"][START_LIMIT] = said
    assert pool_state(pool).start_limit_s == limit_s


def test_of_several_pools_the_slowest_counts_and_one_that_says_nothing_does_not() -> None:
    def pool(limit_s: float | None) -> PoolState:
        return PoolState(
            name="decode",
            num_wanted=1,
            num_present=1,
            num_ready=1,
            generation=1,
            start_limit_s=limit_s,
        )

    assert start_limit_of([pool(720.0), pool(OF_CHART_S), pool(None)]) == OF_CHART_S
    assert start_limit_of([pool(None)]) == start_limit_of([]) == 600.0
