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
NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
HELD_PARTITION = 1_000_000
"""Above any number of replicas: a set that grows while it is held grows by the template before."""


class GroupSets:
    """See PoolKind."""

    plural: Mapping[str, str] = {"group": GROUP, "version": VERSION, "plural": PLURAL}
    why_unnamed = "a LeaderWorkerSet, which loses its last group: none can be named"
    why_not_undone = (
        "a LeaderWorkerSet keeps no template before; name the other pools, or use helm rollback"
    )

    def pods_of_a_worker(self, pool: Object) -> list[Object]:
        """The leader's, and its followers'."""
        template = pool["spec"]["leaderWorkerTemplate"]
        follower = template["workerTemplate"]["spec"]
        leader = (template.get("leaderTemplate") or template["workerTemplate"])["spec"]
        return [leader, *[follower] * (int(template.get("size", 1)) - 1)]

    def labels_of_its_pods(self, pool: Object) -> dict[str, str]:
        """Of the followers, who are of another component than their leader, those that it has."""
        template = pool["spec"]["leaderWorkerTemplate"]
        follower = (template["workerTemplate"].get("metadata") or {}).get("labels") or {}
        first = template.get("leaderTemplate") or template["workerTemplate"]
        leader = (first.get("metadata") or {}).get("labels") or {}
        return {key: value for key, value in leader.items() if follower.get(key) == value}

    def selector_of_its_pods(self, pool: Object) -> Object | None:
        """By the label that their controller gives them."""
        return {"matchLabels": {NAME_LABEL: pool["metadata"]["name"]}}

    def is_paused(self, pool: Object) -> bool:
        """It is on hold."""
        strategy = pool["spec"].get("rolloutStrategy") or {}
        rolling = strategy.get("rollingUpdateConfiguration") or {}
        return bool(rolling.get("partition", 0) >= max(1, int(pool["spec"].get("replicas", 1))))

    def pausing(self, pool: Object, *, is_paused: bool) -> list[Object]:
        """See PoolKind."""
        partition = HELD_PARTITION if is_paused else 0
        strategy = pool["spec"].get("rolloutStrategy") or {"type": "RollingUpdate"}
        rolling = strategy.get("rollingUpdateConfiguration") or {}
        new = {**strategy, "rollingUpdateConfiguration": {**rolling, "partition": partition}}
        return [{"op": "add", "path": "/spec/rolloutStrategy", "value": new}]

    def revision(self, pool: Object) -> int:
        """Its own revisions have hashes for names."""
        return int(pool["metadata"].get("generation", 0))

    def is_seen(self, pool: Object) -> bool:
        """Older ones do not say."""
        seen = (pool.get("status") or {}).get("observedGeneration")
        return seen is None or bool(seen >= pool["metadata"].get("generation", 0))

    def problem(self, pool: Object) -> str:
        """It says that it makes progress, or is available, and no more."""
        return ""
