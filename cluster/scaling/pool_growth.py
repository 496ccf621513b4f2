"""The workers that a pool is to have, and has no pods for yet, or too many. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.scaling.groups import Object
from cluster.scaling.pod_needs import PodNeeds, pod_needs
from cluster.scaling.pool_kind import kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGrowth:
    """Of one pool of an order, or of one that is ordered with it."""

    pool: str
    size: int
    """Workers, when it is done."""
    num_present: int
    """That have pods by now, on a node or not."""
    pods: Sequence[Object]
    """The spec of each pod of one worker."""
    selector: Object | None = None
    """Of its pods; None means none that is there."""

    @property
    def num_new(self) -> int:
        """Workers whose pods are still to be made; below 0: so many are to leave."""
        return self.size - self.num_present

    @property
    def needs(self) -> list[PodNeeds]:
        """Of each pod of one worker. Raises ValueError."""
        return [pod_needs(spec) for spec in self.pods]


def growth_of(pool: Object, name: str, size: int) -> PoolGrowth:
    """Of a pool as the API server has it."""
    kind = kind_of(pool)
    return PoolGrowth(
        pool=name,
        size=size,
        num_present=(pool.get("status") or {}).get("replicas", 0),
        pods=kind.pods_of_a_worker(pool),
        selector=kind.selector_of_its_pods(pool),
    )
