"""Which group of ranks has each routed expert of a layer: a table, the same at every rank.

A model is loaded with runs of neighbours. From then on a layer's table changes as a whole, between
two steps, and counts its generations, so that ranks can tell whether they mean the same one.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.sharding import Rank, run_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPlacement:
    """One layer's. Raises ValueError where some group would have two experts more than another."""

    groups: tuple[int, ...]
    """Of each expert the group that has it."""
    num_groups: int
    generation: int = 0
    """0: as the model was loaded; one more with every change of the layer."""

    def __post_init__(self) -> None:
        counts = Counter(self.groups)
        if not counts.keys() <= set(range(self.num_groups)):
            raise ValueError(f"groups {sorted(counts)} where there are {self.num_groups}")
        sizes = [counts[group] for group in range(self.num_groups)]
        if max(sizes) - min(sizes) > 1:
            raise ValueError(f"groups of {sizes} experts; needed: as many in each, or one more")

    @property
    def num_experts(self) -> int:
        """Of all groups."""
        return len(self.groups)

    def held_by(self, group: int) -> tuple[int, ...]:
        """Ids of a group's experts, ascending: the order in which its ranks keep them."""
        return tuple(expert for expert, at in enumerate(self.groups) if at == group)

    def changed_to(self, groups: Sequence[int]) -> ExpertPlacement:
        """The next generation."""
        return ExpertPlacement(
            groups=tuple(groups), num_groups=self.num_groups, generation=self.generation + 1
        )

    def num_moves(self, other: ExpertPlacement) -> int:
        """Experts that another group has there."""
        return sum(ours != theirs for ours, theirs in zip(self.groups, other.groups, strict=True))


@functools.lru_cache(maxsize=16)
def in_runs(num_experts: int, num_groups: int) -> ExpertPlacement:
    """Neighbours together, as even as it goes: what a model is loaded with."""
    groups = [
        group for group in range(num_groups) for _ in run_of(num_experts, Rank(group, num_groups))
    ]
    return ExpertPlacement(groups=tuple(groups), num_groups=num_groups)
