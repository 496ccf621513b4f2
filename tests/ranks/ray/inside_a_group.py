"""What a task of Ray's does that needs ranks and has a placement group already."""

from __future__ import annotations

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
