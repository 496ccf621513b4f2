"""Rolling updates of a release's pools: how far, on hold, and back.

status    pods of the new template, of the old one, and how far pools are apart
pause     spec.paused, or a partition: pods stay as they are
resume    it goes on
undo      the template before the last one, which rolls out in turn

What changes something is planned for all pools, judged by the server, and then carried out.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.scaling.groups import Object
from cluster.scaling.kubernetes import check_listed, pool_of, selector_of
from cluster.scaling.kubernetes_api import DeploymentsApi
from cluster.scaling.pool_kind import DEPLOYMENTS, kind_of
from cluster.scaling.scaler import RefusalReason, ScaleRefused
from cluster.scaling.template_changes import template_changes

TEMPLATE_HASH = "pod-template-hash"


class RolloutDeed(enum.StrEnum):
    """What an operator does to a rolling update."""

    PAUSE = "pause"
    RESUME = "resume"
    UNDO = "undo"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutState:
    """Of one pool."""

    pool: str
    revision: int
    num_wanted: int
    num_updated: int
    """Pods of the new template."""
    num_ready: int
    num_old: int
    """Pods of a template before it."""
    num_waiting: int | None
    """Pods that are loaded and not ready: they wait for others of their pairing, or for a router.
    None for who may not look at pods."""
    is_paused: bool
    problem: str

    @property
    def is_done(self) -> bool:
        """All pods are of the new template, and ready."""
        return self.num_wanted == self.num_updated == self.num_ready and not self.num_old

    @property
    def share_updated(self) -> float:
        """Of the wanted pods."""
        return self.num_updated / max(1, self.num_wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutChange:
    """What is to be done to one pool."""

    pool: str
    deed: RolloutDeed
    is_paused: bool
    """It is on hold now."""
    revision: int
    revision_after: int
    """Whose template it is to have then."""
    differences: tuple[str, ...] = ()
    """Of that template from the one that it has."""

    @property
    def is_idle(self) -> bool:
        """Nothing changes."""
        return self.deed is not RolloutDeed.UNDO and self.is_paused == (
            self.deed is RolloutDeed.PAUSE
        )


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change, and the patch that makes it: what was agreed to and nothing else."""

    change: RolloutChange
    pool: Object
    operations: Sequence[Object]


class Rollouts:
    """Of one release. Calls raise ScaleRefused and WorkerLost, as DeploymentsApi."""

    def __init__(self, api: DeploymentsApi, release: str) -> None:
        self._api = api
        self._selector = selector_of(release)

    async def status(self, pool: str | None = None) -> list[RolloutState]:
        """Of one pool, or all."""
        found = await self._found(pool)
        pods = await self._api.worker_pods(self._selector)
        waiting = None if pods is None else Counter(pool_of(pod) for pod in pods if _waits(pod))
        return [_state(deployment, waiting) for deployment in found]

    async def planned(self, deed: RolloutDeed, pool: str | None) -> list[PlannedChange]:
        """Of one pool, or all. Changes nothing."""
        found = await self._found(pool)
        if deed is RolloutDeed.UNDO:
            return await self._undoing(found)
        return [_holding(each, deed) for each in found]

    async def carry_out(self, planned: PlannedChange, *, is_dry_run: bool = False) -> None:
        """With `is_dry_run` the server judges it alone."""
        await self._api.patch(planned.pool, planned.operations, is_dry_run=is_dry_run)

    async def _undoing(self, found: Sequence[Object]) -> list[PlannedChange]:
        """Back to the template before. All are looked at before the first is changed."""
        _check_templates_are_kept(found)
        sets = await self._api.replica_sets(self._selector)
        return [_undoing(deployment, _set_before(deployment, sets)) for deployment in found]

    async def _found(self, pool: str | None) -> Sequence[Object]:
        found = await self._api.pools(self._selector)
        if pool is not None:
            check_listed(self._api, pool, [pool_of(item) for item in found])
        named = [item for item in found if pool is None or pool_of(item) == pool]
        if not named:
            raise ScaleRefused(
                RefusalReason.NO_SUCH_POOL,
                f"there is no pool {pool or 'of this release'}; there are: "
                f"{', '.join(map(pool_of, found)) or 'none'}",
            )
        return named


def skew_of(states: Sequence[RolloutState]) -> float:
    """How far the pool that is ahead is from the one behind: 0, together, to 1."""
    shares = [state.share_updated for state in states]
    return max(shares, default=0.0) - min(shares, default=0.0)


def _check_templates_are_kept(found: Sequence[Object]) -> None:
    reasons = {pool_of(each): kind_of(each).why_not_undone for each in found}
    if lacking := [name for name, why in reasons.items() if why]:
        raise ScaleRefused(RefusalReason.OPTIONS, f"{', '.join(lacking)}: {reasons[lacking[0]]}")


def _state(deployment: Object, waiting: Mapping[str, int] | None) -> RolloutState:
    """What the server has not looked at yet has no new pods. `waiting`: pods, by pool."""
    spec, status, kind = deployment["spec"], deployment.get("status") or {}, kind_of(deployment)
    num_updated = status.get("updatedReplicas", 0) if kind.is_seen(deployment) else 0
    return RolloutState(
        pool=pool_of(deployment),
        revision=kind.revision(deployment),
        num_wanted=spec.get("replicas", 1),
        num_updated=num_updated,
        num_ready=status.get("readyReplicas", 0),
        num_old=status.get("replicas", 0) - num_updated,
        num_waiting=None if waiting is None else waiting.get(pool_of(deployment), 0),
        is_paused=kind.is_paused(deployment),
        problem=kind.problem(deployment),
    )


def _holding(pool: Object, deed: RolloutDeed) -> PlannedChange:
    kind = kind_of(pool)
    revision = kind.revision(pool)
    change = RolloutChange(
        pool=pool_of(pool),
        deed=deed,
        is_paused=kind.is_paused(pool),
        revision=revision,
        revision_after=revision,
    )
    return PlannedChange(change, pool, kind.pausing(pool, is_paused=deed is RolloutDeed.PAUSE))


def _undoing(deployment: Object, before: Object) -> PlannedChange:
    template = _template_of(before)
    change = RolloutChange(
        pool=pool_of(deployment),
        deed=RolloutDeed.UNDO,
        is_paused=DEPLOYMENTS.is_paused(deployment),
        revision=DEPLOYMENTS.revision(deployment),
        revision_after=DEPLOYMENTS.revision(before),
        differences=template_changes(deployment["spec"]["template"], template),
    )
    return PlannedChange(change, deployment, _replaced(deployment, template))


def _waits(pod: Object) -> bool:
    """Its startup probe was answered, its readiness is not, and it is not to end."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    is_loaded = bool(containers) and all(each.get("started") for each in containers)
    is_ready = all(each.get("ready") for each in containers)
    return is_loaded and not is_ready and not pod["metadata"].get("deletionTimestamp")


def _set_before(deployment: Object, sets: Sequence[Object]) -> Object:
    """The ReplicaSet of the template before the one that it has."""
    uid, now = deployment["metadata"]["uid"], DEPLOYMENTS.revision(deployment)
    own = [
        item
        for item in sets
        if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences") or ())
    ]
    before = [item for item in own if DEPLOYMENTS.revision(item) < now]
    if not before:
        raise ScaleRefused(
            RefusalReason.OPTIONS, f"{pool_of(deployment)} has no revision before {now}"
        )
    return max(before, key=DEPLOYMENTS.revision)


def _template_of(replica_set: Object) -> dict[str, Any]:
    """Without the label that tells its pods from those of others."""
    template = dict(replica_set["spec"]["template"])
    labels = dict(template["metadata"]["labels"])
    labels.pop(TEMPLATE_HASH, None)
    return template | {"metadata": {**template["metadata"], "labels": labels}}


def _replaced(deployment: Object, template: Object) -> list[Object]:
    """Only if nobody has changed it meanwhile: its status changes with every pod, and is not it."""
    generation = deployment["metadata"]["generation"]
    return [
        {"op": "test", "path": "/metadata/generation", "value": generation},
        {"op": "replace", "path": "/spec/template", "value": template},
    ]
