"""Room in the cluster that tests share: held by others, added, lost, and given back at last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psutil

from cluster.launcher.ray.placing import PlacedGroup, place_group
from cluster.launcher.ray.session import RaySession

DEADLINE_S = 60.0
ONE = {"splitserve_rank": 1.0}
RANKS_PER_NODE = 2
NODE = {
    "num_cpus": 0,  # Ray would start as many Pythons in advance
    "object_store_memory": 80 * 2**20,
    "resources": {"splitserve_rank": RANKS_PER_NODE},
}
Found = TypeVar("Found")


def within(look: Callable[[], Found | None], what: str) -> Found:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S:g} s"
        time.sleep(0.02)
    return found


@contextmanager
def room_held(
    session: RaySession, num_bundles: int, *, node_id: str | None = None
) -> Iterator[PlacedGroup]:
    """Somebody else has so much of the cluster."""
    name = f"others-{os.urandom(4).hex()}"
    group = place_group(session, name, [ONE] * num_bundles, first_node=node_id)
    try:
        yield group
    finally:
        group.remove(session)


@contextmanager
def group_named(session: RaySession, name: str) -> Iterator[Any]:
    """Somebody has made one of two bundles on one node, and removes it."""
    group = session.ray.util.placement_group([ONE] * 2, name=name, strategy="PACK")
    try:
        assert group.wait(DEADLINE_S)
        yield group
    finally:
        session.ray.util.remove_placement_group(group)


@contextmanager
def another_node(raylets: Any, **given: Any) -> Iterator[Any]:
    """A third raylet, which may be lost meanwhile."""
    node = raylets.add_node(**NODE, **given)
    try:
        yield node
    finally:
        if node in raylets.worker_nodes:
            raylets.remove_node(node, allow_graceful=False)
        within(lambda: None if is_counted(raylets, node) else True, "a node is given up")


def is_counted(raylets: Any, node: Any) -> bool:
    """Ray thinks that it lives."""
    rows = raylets.global_state.node_table()
    return any(row["NodeID"] == node.node_id and row["Alive"] for row in rows)


def groups_that_stand(session: RaySession) -> list[dict[str, Any]]:
    """All placement groups of the cluster, also those that wait for room."""
    rows = session.ray.util.placement_group_table().values()
    return [row for row in rows if row["state"] != "REMOVED"]


def assert_gone(*processes: psutil.Process) -> None:
    """Each has ended, or does so soon."""
    for process in processes:
        within(lambda process=process: None if is_alive(process) else True, f"the end of {process}")


def is_alive(process: psutil.Process) -> bool:
    """One that nobody has reaped is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
