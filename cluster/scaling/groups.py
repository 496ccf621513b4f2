"""Pools whose workers are groups of pods: LeaderWorkerSets, as the API server has them.

A replica is a group. What a Deployment says of rolling updates these say otherwise:

    on hold     a partition above all replicas: no group gets the new template, nor one that is new
    before      no template is kept once all groups are of the new one: helm has it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]

GROUP, VERSION, PLURAL = "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"
KIND = "LeaderWorkerSet"
HELD_PARTITION = 1_000_000
"""Above any number of replicas: a set that grows while it is held grows by the template before."""


def is_group_set(pool: Object) -> bool:
    """And no Deployment, of which a list says no kind."""
    return bool(pool.get("kind") == KIND)


def pods_of_a_worker(pool: Object) -> list[Object]:
    """The spec of each pod that one replica consists of."""
    if not is_group_set(pool):
        return [pool["spec"]["template"]["spec"]]
    template = pool["spec"]["leaderWorkerTemplate"]
    follower = template["workerTemplate"]["spec"]
    leader = (template.get("leaderTemplate") or template["workerTemplate"])["spec"]
    return [leader, *[follower] * (int(template.get("size", 1)) - 1)]


def is_held(pool: Object) -> bool:
    """Its rolling update does not go on."""
    strategy = pool["spec"].get("rolloutStrategy") or {}
    rolling = strategy.get("rollingUpdateConfiguration") or {}
    return bool(rolling.get("partition", 0) >= max(1, int(pool["spec"].get("replicas", 1))))


def hold(pool: Object, *, is_paused: bool) -> list[Object]:
    """A JSON patch."""
    partition = HELD_PARTITION if is_paused else 0
    strategy = pool["spec"].get("rolloutStrategy") or {"type": "RollingUpdate"}
    rolling = strategy.get("rollingUpdateConfiguration") or {}
    new = {**strategy, "rollingUpdateConfiguration": {**rolling, "partition": partition}}
    return [{"op": "add", "path": "/spec/rolloutStrategy", "value": new}]
