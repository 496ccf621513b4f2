"""What operators do to a release while clients stream: none of them sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.deploy.chart import Manifest
from tests.deploy.load import load
from tests.deploy.release import IN_TIME, NAME, VALUES, Release, model_cache
from tests.fleet.support import wait_for
from tests.mini_cluster.machine import running_cluster

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]
TWO: Manifest = VALUES | {"pools": {"prefill": {"replicas": 1}, "decode": {"replicas": 2}}}
CHANGED: Manifest = TWO | {"worker": {"options": {**VALUES["worker"]["options"], "maxNumSeqs": 8}}}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A prefill and two decode workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), model_cache()) as cluster:
        made = Release(cluster)
        made.install(TWO)
        yield made


async def under_load(release: Release, *steps: Callable[[], object]) -> None:
    """Each step is over before the next; 0 streams fail, and 0 are wrong."""
    async with load(release) as clients:
        for step in steps:
            before = clients.num_right
            await asyncio.to_thread(step)
            while clients.num_right < before + 2 and not clients.wrong:
                await asyncio.sleep(0.1)


def delete_one(release: Release, component: str) -> None:
    """Of those that are not leaving already."""
    release.cluster.kubectl("delete", "pod", release.staying(component)[0]["metadata"]["name"])


async def test_an_upgrade_with_a_changed_argument_and_its_rollback_lose_no_stream(
    release: Release,
) -> None:
    before = set(release.pods("decode-worker"))
    await under_load(
        release,
        lambda: release.upgrade(CHANGED),
        lambda: release.cluster.helm("rollback", NAME, "1", "--wait", *IN_TIME),
    )
    assert not before & set(release.pods("decode-worker"))


async def test_deleted_workers_of_both_roles_lose_no_stream(release: Release) -> None:
    def delete(component: str) -> None:
        delete_one(release, component)
        release.rollout(component.removesuffix("-worker"))

    await under_load(release, lambda: delete("decode-worker"), lambda: delete("prefill-worker"))


async def test_scaling_a_pool_up_and_down_loses_no_stream(release: Release) -> None:
    def scale(replicas: int) -> None:
        words = ("scale", f"deployment/{NAME}-decode", f"--replicas={replicas}")
        release.cluster.kubectl(*words)
        release.rollout("decode")

    await under_load(release, lambda: scale(1), lambda: scale(2))


async def test_routers_that_come_and_go_lose_no_stream_and_each_has_every_worker(
    release: Release,
) -> None:
    def scale(replicas: int) -> None:
        release.cluster.kubectl("scale", f"deployment/{NAME}-router", f"--replicas={replicas}")
        see_all_workers(replicas)

    def delete() -> None:
        delete_one(release, "router")
        see_all_workers(2)

    def see_all_workers(num_routers: int) -> None:
        release.rollout("router")
        everybody = [{"decode": 2, "prefill": 1}] * num_routers
        wait_for(
            lambda: release.members_at_routers() == everybody,
            timeout_s=120,
            what=f"{num_routers} routers that each have all workers",
        )

    steps = (lambda: scale(3), lambda: scale(2), delete, lambda: scale(1))
    await under_load(release, *steps)


async def test_draining_a_node_loses_no_stream(release: Release) -> None:
    """With two routers and two decode workers, all of them on that node: budgets let one of each
    go, and the other when a successor is ready."""

    def gather() -> None:
        release.cluster.kubectl("scale", f"deployment/{NAME}-router", "--replicas=2")
        release.rollout("router")
        release.drain("two")
        release.uncordon("two")
        assert release.nodes() == {"one"}

    await under_load(release, gather, lambda: release.drain("one"), lambda: release.uncordon("one"))


async def test_the_only_router_goes_before_its_node_is_drained_and_no_stream_is_lost(
    release: Release,
) -> None:
    """Its budget lets it go, and nobody answers until its successor is ready; who restarts it on
    the cordoned node has the successor first."""
    release.cluster.kubectl("scale", f"deployment/{NAME}-router", "--replicas=1")
    release.rollout("router")
    (router,) = release.staying("router")
    node: str = router["spec"]["nodeName"]

    def move() -> None:
        release.cluster.kubectl("cordon", node)
        release.cluster.kubectl("rollout", "restart", f"deployment/{NAME}-router")
        release.rollout("router")

    await under_load(release, move, lambda: release.drain(node), lambda: release.uncordon(node))
