"""A change of model of which one pool comes over and the other does not yet: Kubernetes holds the
first, since its new workers are loaded and not ready, and streams go on at the pair before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.run_cli import clean_environ, cli
from tests.deploy.chart import CHART
from tests.deploy.load import load
from tests.deploy.other_models import home_with_other_models
from tests.deploy.release import CLAIM, IN_TIME, NAME, Release
from tests.deploy.test_model_change import values_of
from tests.fleet.support import wait_for
from tests.mini_cluster.machine import running_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]
WITHIN_S = 300.0
WAITS = (
    "it waits for others of its pairing: 0 of 1 prefill workers have this pairing and 0 of 1 decode"
)


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    """One worker of each role, and one router."""
    home = home_with_other_models(tmp_path / "home")
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running_cluster(folder, {CLAIM: home}) as cluster:
        made = Release(cluster)
        made.install(values_of("smollm2"))
        yield made


def rollout(release: Release, *words: str) -> None:
    for pool in ("prefill", "decode"):
        release.cluster.kubectl("rollout", *words, f"deployment/{NAME}-{pool}")


def whys(release: Release, component: str) -> dict[str, str]:
    """Of each pod that says so: why it is not ready. Empty words: it is."""
    words = ("get", "pods", "-o", "json", "-l", f"app.kubernetes.io/component={component}")
    pods = json.loads(release.cluster.kubectl(*words))["items"]
    said = {}
    for pod in pods:
        try:
            page = httpx.get(f"http://{pod['status'].get('podIP')}:9400/ready", trust_env=False)
        except httpx.HTTPError:
            continue
        said[pod["metadata"]["name"]] = "" if page.status_code == 200 else page.text
    return said


def told_of_one_that_waits(release: Release) -> dict[str, Any]:
    """States in which a new prefill worker waits beside an old one. A pod says so first, and its
    operator hears of it when the kubelet has asked whether it has started, as it does every 5 s."""

    def look() -> dict[str, Any] | None:
        told = states(release)
        prefill = told["prefill"]
        return told if (prefill["num_waiting"], prefill["num_old"]) == (1, 1) else None

    told: dict[str, Any] = wait_for(look, timeout_s=WITHIN_S, what="one that waits, as it is told")
    return told


def states(release: Release) -> dict[str, Any]:
    """By pool, as an operator is told."""
    environ = clean_environ(KUBECONFIG=str(release.cluster.server.kubeconfig("")))
    told = cli(
        "rollout", "status", "--kubernetes", f"default/{NAME}", "-o", "json", environ=environ
    )
    return {pool["pool"]: pool for pool in json.loads(told.stdout)["pools"]}


async def test_a_pool_that_is_ahead_waits_for_the_other_and_no_stream_is_lost(
    release: Release,
) -> None:
    (old,) = release.pods("prefill-worker")
    upgraded = values_of("/var/cache/splitserve/weights.gguf")
    async with load(release, changes_model=True) as clients:
        release.cluster.kubectl("rollout", "pause", f"deployment/{NAME}-decode")
        change = ("upgrade", NAME, str(CHART), "--values", "-")
        await asyncio.to_thread(release.cluster.helm, *change, stdin=json.dumps(upgraded))
        await asyncio.to_thread(
            wait_for,
            lambda: any(why.startswith(WAITS) for why in whys(release, "prefill-worker").values()),
            timeout_s=WITHIN_S,
            what="a prefill worker that waits for a partner",
        )
        right = clients.num_right
        while clients.num_right < right + 4 and not clients.wrong:
            await asyncio.sleep(0.1)
        told = await asyncio.to_thread(told_of_one_that_waits, release)
        assert old in release.pods("prefill-worker")
        assert told["decode"]["is_paused"] and told["decode"]["num_waiting"] == 0
        release.cluster.kubectl("rollout", "resume", f"deployment/{NAME}-decode")
        await asyncio.to_thread(rollout, release, "status", *IN_TIME)
    assert old not in release.pods("prefill-worker")
