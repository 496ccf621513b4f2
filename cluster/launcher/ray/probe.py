"""A look at Ray from a process of its own: has a cluster room, and do its actors answer?"""

from __future__ import annotations

import os
import time
from typing import Any

from cluster.deadline import Clock
from cluster.launcher.ray.bundles import bundle_of_a_rank
from cluster.launcher.ray.hosting import ActorPlace, begin_hosts
from cluster.launcher.ray.placing import place_group
from cluster.launcher.ray.session import RaySession

_NUM_RANKS = 2
_SHOWN = ("CPU", "GPU", "splitserve_rank")


def probe_ray(*, clock: Clock = time.monotonic) -> dict[str, Any]:
    """Facts for a line of `splitserve doctor`. Raises ConfigError, which says what is missing."""
    began_s = clock()
    session = RaySession.open(num_ranks=_NUM_RANKS)
    try:
        connected_s = clock()
        nodes = session.nodes()
        free = {name: sum(node.free.get(name, 0.0) for node in nodes) for name in _SHOWN}
        bundle = bundle_of_a_rank(nodes, uses_gpus=False)
        name = f"doctor-{os.getpid()}"
        group = place_group(session, name, [bundle] * _NUM_RANKS)
        places = {
            f"{name}-{index}": ActorPlace(group=group, bundle=index) for index in range(_NUM_RANKS)
        }
        for host in begin_hosts(session, places):
            host.end(session)
        group.remove(session)
        return {
            "version": session.ray.__version__,
            "whose": "a Ray of our own" if session.started_ray else "the cluster",
            "address": session.address,
            "connect_s": connected_s - began_s,
            "place_s": clock() - connected_s,
            "num_nodes": len(nodes),
            "free": ", ".join(f"{name} {amount:g}" for name, amount in free.items() if amount),
        }
    finally:
        session.close()
