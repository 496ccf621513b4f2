"""Which part of a model each rank of a group holds: pure functions of global integers.

The same on every side: who slices a matrix, who writes a head's KV, who reads it from another
group. Nobody counts heads per rank.

    rows, columns, groups, experts   contiguous runs, as even as they go
    KV heads                         as these; of more ranks than heads, several hold the same one
    query heads                      where their KV head is; shared out where several hold it
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cluster.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Rank:
    """One of a group's `world_size` parts."""

    index: int
    world_size: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.world_size:
            raise ValueError(f"rank {self.index} of {self.world_size}")

    @property
    def is_alone(self) -> bool:
        """True when it holds all there is."""
        return self.world_size == 1


ALONE = Rank(0, 1)


class RowSharing(enum.Enum):
    """Which of a step's rows a rank has, between the products that ranks share."""

    ALL = "all"
    """Each has all of them; of a single rank, too."""
    SPLIT = "split"
    """A run of them: routed experts get theirs by exchange, and shared ones are whole at each."""
    OWN = "own"
    """Those of its own sequences (data-parallel attention): nothing but routed experts is shared,
    and these get theirs by exchange."""

    @property
    def exchanges_rows(self) -> bool:
        """Whether each rank sends rows to the experts of others."""
        return self is not RowSharing.ALL


def ranks_of(world_size: int) -> list[Rank]:
    """All of a group, in order."""
    return [Rank(index, world_size) for index in range(world_size)]


def run_of(num_units: int, rank: Rank) -> range:
    """A rank's run of `num_units`; sizes differ by one at most, and are 0 where units are few."""
    first, end = rank.index, rank.index + 1
    return range(num_units * first // rank.world_size, num_units * end // rank.world_size)


def columns_of(width: int, unit: int, rank: Rank) -> range:
    """A rank's run of `width` columns, in whole units: groups that share a scale, heads.

    Raises ConfigError where the units do not go round.
    """
    if width % unit or width // unit < rank.world_size:
        raise ConfigError(
            f"{width} values in units of {unit} cannot be shared by {rank.world_size} ranks; "
            f"use at most {max(1, width // unit)}",
            param="tensor_parallel_size",
        )
    units = run_of(width // unit, rank)
    return range(units.start * unit, units.stop * unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSplit:
    """How attention's heads lie at the ranks of a group.

    Raises ConfigError where some rank would have no query head.
    """

    num_heads: int
    """Query heads; a multiple of the KV heads, whose groups are neighbours."""
    num_kv_heads: int
    world_size: int

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads",
                param="model",
            )
        if self.world_size > self.num_heads:
            raise ConfigError(
                f"{self.num_heads} heads cannot be shared by {self.world_size} ranks; "
                f"use at most {self.num_heads}",
                param="tensor_parallel_size",
            )

    def kv_heads(self, index: int) -> range:
        """Those that a rank keeps the KV of; never none."""
        run = run_of(self.num_kv_heads, self._rank(index))
        return run if len(run) else range(run.start, run.start + 1)

    def heads(self, index: int) -> range:
        """The query heads that a rank computes; never none. Together they are all, each once."""
        kept = self.kv_heads(index)
        if self.world_size <= self.num_kv_heads:
            return range(kept.start * self._group, kept.stop * self._group)
        holders = self.holders(kept.start)
        own = run_of(self._group, Rank(index - holders.start, len(holders)))
        first = kept.start * self._group
        return range(first + own.start, first + own.stop)

    def holders(self, kv_head: int) -> range:
        """The ranks that keep a KV head: one, or neighbours that all keep the same."""
        if not 0 <= kv_head < self.num_kv_heads:
            raise ValueError(f"KV head {kv_head} of {self.num_kv_heads}")
        found = [at for at in range(self.world_size) if kv_head in self.kv_heads(at)]
        return range(found[0], found[-1] + 1)

    def owner(self, kv_head: int, asked_by: int) -> int:
        """Which of its holders a rank of another group reads a KV head from: spread over them."""
        holders = self.holders(kv_head)
        return holders[asked_by % len(holders)]

    @property
    def _group(self) -> int:
        return self.num_heads // self.num_kv_heads

    def _rank(self, index: int) -> Rank:
        return Rank(index, self.world_size)
