"""What a task of Ray's does that needs ranks and has a placement group already."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from cluster.launcher.ray.own_group import environ_of_own_group
from ranks.ray.ray_spawner import RaySpawner


def place_two() -> tuple[tuple[str, ...], list[int]]:
    """The hosts of two ranks, and the ranks that got an actor."""
    spawner = RaySpawner(
        "tests.ranks.ray.trivial_follower", name="inside", address=None, uses_gpus=False
    )
    placement = spawner.place(2)
    hosts = sorted(spawner.hosts)
    spawner.close()
    return placement.nodes, hosts


def place_two_in_a_child() -> tuple[tuple[str, ...], list[int]]:
    """The same by a child of the task, as an engine is of its worker."""
    environ = {**os.environ, **environ_of_own_group()}
    argv = [sys.executable, "-m", "tests.ranks.ray.inside_a_group"]
    printed = subprocess.run(argv, env=environ, check=True, stdout=subprocess.PIPE).stdout
    nodes, hosts = json.loads(printed.splitlines()[-1])
    return tuple(nodes), hosts


if __name__ == "__main__":
    print(json.dumps(place_two()))
