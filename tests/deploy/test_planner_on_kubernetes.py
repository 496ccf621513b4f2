"""A release whose decode pool the chart's planner sizes: under load it grows, after it it shrinks,
and no stream fails; without a right of its role it says which."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.join_token import JOIN_TOKEN
from tests.cli.run_cli import clean_environ, cli
from tests.deploy.chart import Manifest
from tests.deploy.load import load
from tests.deploy.release import NAME, VALUES, Release, model_cache
from tests.deploy.test_verbs_on_kubernetes import FLEET_PORT, router_address, token_in
from tests.fleet.support import wait_for
from tests.mini_cluster.machine import running_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]
PLANNED: Manifest = VALUES | {
    "planner": {
        "enabled": True,
        "maxReplicas": {"decode": 2},
        "options": {
            "lookIntervalS": 0.5,
            "scaleTarget": 0.05,
            "growAfterS": 1,
            "growEveryS": 2,
            "shrinkAfterS": 5,
            "shrinkEveryS": 1,
        },
    }
}
CHANGE_S = 240


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), model_cache()) as cluster:
        made = Release(cluster)
        made.install(PLANNED)
        yield made


async def until(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_for, condition, timeout_s=CHANGE_S, what=what)


def has(release: Release, size: int) -> bool:
    """Wanted, there and ready; and every router has as many."""
    deployment = release.get("deployments.apps", f"{NAME}-decode")
    status = deployment.get("status") or {}
    sizes = (deployment["spec"]["replicas"], status.get("readyReplicas"), status.get("replicas"))
    return sizes == (size, size, size) and all(
        members.get("decode") == size for members in release.members_at_routers()
    )


def planned(release: Release, folder: Path) -> list[str]:
    """The events of the planner, as an operator reads them."""
    token = token_in(release, folder).read_text()
    where = f"{router_address(release)}:{FLEET_PORT}"
    done = cli("events", "--grpc", where, environ=clean_environ(**{JOIN_TOKEN: token}))
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if "planned" in line]


async def test_a_pool_grows_under_load_and_shrinks_after_it_and_no_stream_fails(
    release: Release, tmp_path: Path
) -> None:
    async with load(release) as clients:
        await until(lambda: has(release, 2), "two decode workers")
        before = clients.num_right
        while clients.num_right < before + 2 and not clients.wrong:
            await asyncio.sleep(0.1)
    await until(lambda: has(release, 1), "one decode worker")
    grown, shrunk = [line for line in planned(release, tmp_path) if "begun" in line][:2]
    assert "from 1 to 2, begun: decode steps take" in grown
    assert "from 2 to 1, begun:" in shrunk


async def test_a_planner_without_its_right_says_which_one_it_lacks_and_changes_nothing(
    release: Release, tmp_path: Path
) -> None:
    await until(lambda: has(release, 1), "one decode worker")
    role = json.loads(release.cluster.kubectl("get", "role", f"{NAME}-planner", "-o", "json"))
    rules = [rule for rule in role["rules"] if "patch" not in rule["verbs"]]
    assert len(rules) < len(role["rules"])
    words = ("patch", "role", f"{NAME}-planner", "--type", "merge", "-p")
    release.cluster.kubectl(*words, json.dumps({"rules": rules}))
    async with load(release):
        await until(
            lambda: any("refused" in each for each in planned(release, tmp_path)), "a refusal"
        )
    (refused, *_) = [each for each in planned(release, tmp_path) if "refused" in each]
    assert "forbidden" in refused and "cannot patch" in refused
    assert "deployments/scale" in refused
    assert has(release, 1)
