"""What disruption budgets say of workers that leave. Pure.

Kubernetes asks them for evictions alone; a pool that is made smaller by hand would pass them by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.scaling.groups import Object
from cluster.scaling.label_selectors import Labels, selects
from cluster.scaling.scaler import PoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShrinking:
    """One pool that is to be smaller."""

    state: PoolState
    size: int
    pods_of_a_worker: int
    labels: Labels
    """Of its pods."""

    @property
    def num_pods(self) -> int:
        """That leave."""
        return max(0, self.state.num_wanted - self.size) * self.pods_of_a_worker

    @property
    def num_healthy_pods(self) -> int:
        """Of them: those that are not ready go first."""
        unready = max(0, self.state.num_present - self.state.num_ready) * self.pods_of_a_worker
        return max(0, self.num_pods - unready)


def budget_refusals(budgets: Sequence[Object], shrinking: PoolShrinking) -> list[str]:
    """One for each budget that would have fewer healthy pods than it keeps; a pool that loses none
    of those is none of its concerns."""
    if not shrinking.num_healthy_pods:
        return []
    of_pool = (each for each in budgets if selects(each["spec"].get("selector"), shrinking.labels))
    return [text for each in of_pool if (text := _refusal(each, shrinking))]


def _refusal(budget: Object, shrinking: PoolShrinking) -> str:
    """Empty: it may be."""
    state, status = shrinking.state, budget.get("status") or {}
    num_wanted, num_ready = (
        number * shrinking.pods_of_a_worker for number in (state.num_wanted, state.num_ready)
    )
    expected = status.get("expectedPods", num_wanted) - shrinking.num_pods
    healthy = status.get("currentHealthy", num_ready)
    left = healthy - shrinking.num_healthy_pods
    kept = _kept(budget["spec"], max(0, expected))
    if left >= kept:
        return ""
    return (
        f"disruption budget {budget['metadata']['name']} keeps {kept} healthy pods: of {healthy} "
        f"now {max(0, left)} would be left, without {shrinking.num_pods} of {state.name}"
    )


def _kept(spec: Object, expected: int) -> int:
    """Of so many pods that are wanted. Both bounds are rounded up."""
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - _share(spec["maxUnavailable"], expected))
    return _share(spec.get("minAvailable") or 0, expected)


def _share(value: int | str, whole: int) -> int:
    text = str(value)
    return math.ceil(int(text[:-1]) * whole / 100) if text.endswith("%") else int(text)
