"""Between which sizes a planner keeps each pool."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.errors import ConfigError
from cluster.scaling.wire import MAX_SIZE


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Of one pool; both ends included."""

    pool: str
    least: int
    most: int


def limits_of(words: str | None) -> tuple[PoolLimits, ...]:
    """From prefill=1..8,decode=2..16, in that order. Raises ConfigError."""
    if words is None:
        raise ConfigError(
            "a planner has to be told the pools that it sizes: --pools prefill=1..8,decode=2..16",
            param="pools",
        )
    found = tuple(_limits_of(word) for word in words.split(","))
    if len({each.pool for each in found}) < len(found):
        raise ConfigError(f"--pools {words} names a pool twice", param="pools")
    return found


def _limits_of(word: str) -> PoolLimits:
    pool, _, sizes = word.partition("=")
    least, most = map(int, sizes.split(".."))
    if not 1 <= least <= most <= MAX_SIZE:
        raise ConfigError(
            f"--pools {word}: a pool has 1 to {MAX_SIZE} workers, the lower number first",
            param="pools",
        )
    return PoolLimits(pool, least, most)
