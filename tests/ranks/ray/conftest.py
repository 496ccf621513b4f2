"""A Ray cluster of two raylets, started once; this process is one of its drivers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.launcher.ray.session import RaySession
from ranks.ray.ray_spawner import RaySpawner
from tests.ranks.ray.cluster_room import NODE

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["test_*"]  # `make` installs it
GPUS = ("4", "7")
"""That the first node says it has: nobody computes on them."""
SOON_SEEN = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}
"""A node that is gone is no room any more: within seconds, and not half a minute."""


@pytest.fixture(scope="session")
def raylets() -> Iterator[Any]:
    """Two nodes of one cluster on this machine, that were there before anybody came."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environ:
        environ.delenv("RAY_ADDRESS", raising=False)
        environ.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environ.setenv("CUDA_VISIBLE_DEVICES", ",".join(GPUS))
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                **NODE,
                "num_gpus": len(GPUS),
                "include_dashboard": False,
                "_system_config": SOON_SEEN,
            },
        )
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="session")
def session(raylets: Any) -> Iterator[RaySession]:
    """This process's connection to them, which everything here shares."""
    opened = RaySession.open(raylets.address, num_ranks=0)
    yield opened
    opened.close()


def spawner_of_followers(session: RaySession, name: str, *, uses_gpus: bool = False) -> RaySpawner:
    """Of trivial ones."""
    return RaySpawner(
        "tests.ranks.ray.trivial_follower",
        name=f"{name}-{os.urandom(4).hex()}",
        address=session.address,
        uses_gpus=uses_gpus,
    )


MakeSpawner = Callable[..., RaySpawner]


@pytest.fixture
def spawner(session: RaySession) -> Iterator[MakeSpawner]:
    """Makes spawners of trivial followers, each closed after the test."""
    with contextlib.ExitStack() as made:

        def make(*, uses_gpus: bool = False) -> RaySpawner:
            spawner = spawner_of_followers(session, "group", uses_gpus=uses_gpus)
            made.callback(spawner.close)
            return spawner

        yield make
