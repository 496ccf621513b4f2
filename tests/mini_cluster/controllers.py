"""All controllers of a cluster, in one task: after each change each looks at everything.

That is little work for the few objects of a test, and none of them can miss a change. What depends
on time (deadlines, `minReadySeconds`) is looked at every second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from tests.mini_cluster.deployment import reconcile_deployments
from tests.mini_cluster.job import reconcile_jobs
from tests.mini_cluster.leader_worker_set import reconcile_leader_worker_sets
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.replica_set import reconcile_replica_sets
from tests.mini_cluster.scheduling import schedule_pods
from tests.mini_cluster.stateful_set import reconcile_stateful_sets

Reconcile = Callable[[ObjectStore, datetime], None]
"""Does what is to be done by now, and nothing where nothing is."""
WORKLOADS: tuple[Reconcile, ...] = (
    reconcile_deployments,
    reconcile_leader_worker_sets,
    reconcile_replica_sets,
    reconcile_stateful_sets,
    reconcile_jobs,
)
ALL: tuple[Reconcile, ...] = (*WORKLOADS, schedule_pods)
_LOOK_S = 1.0
_MOST_ROUNDS = 100


def settle(store: ObjectStore, controllers: Sequence[Reconcile], now: datetime) -> None:
    """Until nothing changes any more. RuntimeError if controllers work against each other."""
    for _ in range(_MOST_ROUNDS):
        version = store.version
        for reconcile in controllers:
            reconcile(store, now)
        if store.version == version:
            return
    raise RuntimeError(f"no rest after {_MOST_ROUNDS} rounds of all controllers")


async def run_controllers(store: ObjectStore, controllers: Sequence[Reconcile]) -> NoReturn:
    """For ever. Whoever starts it hears of its failure."""
    while True:
        settle(store, controllers, datetime.now(UTC))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):  # wait_for loses a cancel that comes with a change
                await store.wait_for_more(store.version)
