"""How many workers a pool has, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cluster.config import ServeOptions
from cluster.identity import Role


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Of one pool; a worker keeps its name, whether it serves or is a spare."""

    role: Role
    num_places: int
    """Workers that serve at once."""
    num_spares: int

    @property
    def name(self) -> str:
        """As metrics and reports have it."""
        return self.role.value

    @property
    def num_workers(self) -> int:
        """Processes that are kept alive."""
        return self.num_places + self.num_spares

    @property
    def names(self) -> tuple[str, ...]:
        """Of its workers."""
        return tuple(worker_name(self.role, index) for index in range(self.num_workers))


def pool_sizes(options: ServeOptions) -> tuple[PoolSize, PoolSize]:
    """Prefill and decode; a pool without places has no spares either."""
    own = (options.prefill_warm_spares, options.decode_warm_spares)
    wanted = [options.warm_spares if number is None else number for number in own]
    return (
        PoolSize(Role.PREFILL, options.prefill, wanted[0] if options.prefill else 0),
        PoolSize(Role.DECODE, options.decode, wanted[1]),
    )


def worker_name(role: Role, index: int) -> str:
    """The name of a process, and the id of a worker."""
    return f"{role}-{index}"


def pool_of(name: str, pools: Iterable[PoolSize]) -> str:
    """A worker's pool; of a process that is in none, its name."""
    return next((pool.name for pool in pools if name.startswith(f"{pool.name}-")), name)
