"""The cluster that all tests here share, and what starts ranks there."""

from __future__ import annotations

import contextlib
import os
from functools import cached_property
from typing import Any

import pytest

from cluster.launcher.ray.library import ray_library
from cluster.launcher.ray.session import RaySession
from ranks.ray.ray_spawner import RaySpawner
from tests.ranks.ray.cluster_room import NODE

GPUS = ("4", "7")
"""That the first node says it has: nobody computes on them."""
SOON_SEEN = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}
"""A node that is gone is no room any more: within seconds, and not half a minute. Tasks and actors
get their turn on busy cores."""


class TwoRaylets:
    """Nodes of one cluster on this machine, that were there before anybody came; started when they
    are first asked for."""

    def __init__(self) -> None:
        self._closers = contextlib.ExitStack()

    @cached_property
    def cluster(self) -> Any:
        """Ray's own utility."""
        ray_library()  # which says how Ray is to be, before it is imported
        from ray.cluster_utils import Cluster

        with pytest.MonkeyPatch.context() as environ:
            environ.delenv("RAY_ADDRESS", raising=False)
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
        self._closers.callback(cluster.shutdown)
        cluster.add_node(**NODE)
        return cluster

    @cached_property
    def session(self) -> RaySession:
        """This process's connection to them."""
        opened = RaySession.open(self.cluster.address, num_ranks=0)
        self._closers.callback(opened.close)
        return opened

    def close(self) -> None:
        """Other tests of this process have none of it."""
        self._closers.close()


def spawner_of_followers(session: RaySession, name: str, **given: Any) -> RaySpawner:
    """Of trivial ones."""
    return RaySpawner(
        "tests.ranks.ray.trivial_follower",
        name=f"{name}-{os.urandom(4).hex()}",
        address=session.address,
        **{"uses_gpus": False, **given},
    )
