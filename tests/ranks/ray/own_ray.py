"""An engine that has no Ray yet: places two ranks, starts one, says so, and goes on for ever.

python -m tests.ranks.ray.own_ray [HOST:PORT]: there another host has to join for the second rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import psutil

from cluster.launcher.ray.open_ray import HostWait, open_ray_of
from cluster.logs import configure_logging
from cluster.process.parent_death import die_with_parent
from ranks.ray.ray_spawner import RaySpawner
from tests.ranks.ray.launches import launch


def main() -> None:
    die_with_parent()
    configure_logging("own-ray")
    before = signal.getsignal(signal.SIGTERM)
    hosts = open_ray_of(sys.argv[1], 2, None) if len(sys.argv) > 1 else None
    spawner = RaySpawner(
        "tests.ranks.ray.trivial_follower",
        name="own",
        address=None,
        uses_gpus=False,
        hosts=hosts,
        patience=HostWait(limit_s=120.0),
    )
    placement = spawner.place(2)
    rank = spawner.start(launch(1))
    told = {
        "rank": rank.pid,
        "hosts": list(placement.nodes),
        "addresses": {rank: host.facts.address for rank, host in spawner.hosts.items()},
        "niceness": os.getpriority(os.PRIO_PROCESS, rank.pid) - os.nice(0),
        "processes": [child.pid for child in psutil.Process().children(recursive=True)],
        "keeps_its_handler": signal.getsignal(signal.SIGTERM) == before,
    }
    print(json.dumps(told), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
