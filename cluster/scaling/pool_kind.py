"""The two kinds of objects that a release's pools are, and what tells them apart: nobody else asks.

Deployment         a replica is a pod
LeaderWorkerSet    a replica is a group of pods (groups.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cluster.scaling.groups import KIND, GroupSets, Object

REVISION = "deployment.kubernetes.io/revision"
_FAILURES = {"ReplicaFailure": "True", "Progressing": "False"}
"""Conditions of a Deployment, as they are when something is in its way."""


class PoolKind(Protocol):
    """What is asked of an object that is a pool, as the API server has it."""

    plural: Mapping[str, str]
    """Where the server has a custom resource: group, version and plural; empty: it is none."""
    why_unnamed: str
    """Why none of its workers can be named to leave; empty: they can."""
    why_not_undone: str
    """Why it cannot go back to the template before; empty: it can."""

    def pods_of_a_worker(self, pool: Object) -> list[Object]:
        """The spec of each pod that one replica consists of."""

    def labels_of_its_pods(self, pool: Object) -> dict[str, str]:
        """That all of its newest template have."""

    def selector_of_its_pods(self, pool: Object) -> Object | None:
        """Of all of them, whatever their template."""

    def is_paused(self, pool: Object) -> bool:
        """Its rolling update does not go on."""

    def pausing(self, pool: Object, *, is_paused: bool) -> list[Object]:
        """A JSON patch."""

    def revision(self, pool: Object) -> int:
        """Grows with its templates."""

    def is_seen(self, pool: Object) -> bool:
        """False while its status is of what was wanted before."""

    def problem(self, pool: Object) -> str:
        """Why pods are not made, or do not get ready, of what is wanted now; empty: neither is
        said."""


class Deployments:
    """See PoolKind."""

    plural: Mapping[str, str] = {}
    why_unnamed = why_not_undone = ""

    def pods_of_a_worker(self, pool: Object) -> list[Object]:
        """See PoolKind."""
        return [pool["spec"]["template"]["spec"]]

    def labels_of_its_pods(self, pool: Object) -> dict[str, str]:
        """See PoolKind."""
        return dict((pool["spec"]["template"].get("metadata") or {}).get("labels") or {})

    def selector_of_its_pods(self, pool: Object) -> Object | None:
        """See PoolKind."""
        found: Object | None = pool["spec"].get("selector")
        return found

    def is_paused(self, pool: Object) -> bool:
        """See PoolKind."""
        return bool(pool["spec"].get("paused"))

    def pausing(self, pool: Object, *, is_paused: bool) -> list[Object]:
        """See PoolKind."""
        return [{"op": "add", "path": "/spec/paused", "value": is_paused}]

    def revision(self, pool: Object) -> int:
        """Of its ReplicaSets, too."""
        return int((pool["metadata"].get("annotations") or {}).get(REVISION, 0))

    def is_seen(self, pool: Object) -> bool:
        """See PoolKind."""
        seen = (pool.get("status") or {}).get("observedGeneration", 0)
        return bool(seen >= pool["metadata"].get("generation", 0))

    def problem(self, pool: Object) -> str:
        """See PoolKind."""
        if not self.is_seen(pool):
            return ""
        for condition in (pool.get("status") or {}).get("conditions") or ():
            failed = _FAILURES.get(condition["type"]) == condition["status"]
            if failed and condition.get("reason") != "DeploymentPaused":
                return str(condition.get("message") or condition.get("reason"))
        return ""


DEPLOYMENTS = Deployments()
_GROUP_SETS = GroupSets()


def kind_of(pool: Object) -> PoolKind:
    """A list of Deployments says no kind of each."""
    return _GROUP_SETS if pool.get("kind") == KIND else DEPLOYMENTS
