"""How a worker is started that the fleet was not begun with. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from cluster.config import ServeOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.launcher.protocol import VISIBLE_DEVICES, NodeFacts, ProcessSpec
from cluster.scaling.scaler import RefusalReason, ScaleRefused
from cluster.supervisor.fleet import Machine, num_ranks, plan_fleet
from cluster.supervisor.pool import pool_sizes, worker_name


@dataclasses.dataclass(frozen=True, slots=True)
class Growth:
    """One pool of a fleet that runs, and as many workers more."""

    options: ServeOptions
    """As if the fleet began with the new size."""
    machine: Machine
    """With the memory that is free now, for each worker as if it were alone."""
    role: Role
    names: tuple[str, ...]

    def specs(self, running: Iterable[ProcessSpec]) -> list[ProcessSpec]:
        """Of the new workers, each on GPUs that no other has. Raises ScaleRefused."""
        try:
            _, planned = plan_fleet(self.options, self.machine)
        except ConfigError as refusal:
            raise ScaleRefused(RefusalReason.OPTIONS, refusal.message) from refusal
        specs = [self._in_what_is_free(spec) for spec in planned if spec.name in self.names]
        return self._on_free_gpus(specs, list(running)) if self._gpus else specs

    @property
    def num_gpus(self) -> int:
        """That all of them take."""
        return self.num_ranks if self._gpus else 0

    @property
    def _gpus(self) -> tuple[str, ...]:
        return () if self.options.engine.device == "cpu" else self.machine.gpus

    @property
    def num_ranks(self) -> int:
        """Of all of them."""
        return len(self.names) * num_ranks(self.options, self.role)

    def _in_what_is_free(self, spec: ProcessSpec) -> ProcessSpec:
        """Where others have a share of its node's memory already, as if those were alone there."""
        if (argv_at := spec.argv_at) is None:
            return spec
        num_all = sum(pool.num_workers for pool in pool_sizes(self.options))

        def argv_beside_others(node: NodeFacts) -> tuple[str, ...]:
            share = min(node.free_memory_share, node.free_memory_share_now * num_all)
            return argv_at(dataclasses.replace(node, free_memory_share=share))

        return dataclasses.replace(spec, argv_at=argv_beside_others)

    def _on_free_gpus(
        self, specs: list[ProcessSpec], running: list[ProcessSpec]
    ) -> list[ProcessSpec]:
        free = _free_gpus(self._gpus, running)
        if self.num_gpus > len(free):
            raise ScaleRefused(
                RefusalReason.GPUS,
                f"{', '.join(self.names)} would take {self.num_gpus} GPU(s), and {len(free)} of "
                f"{len(self._gpus)} have no worker",
            )
        return [_at(spec, [free.pop(0) for _ in range(spec.ranks)]) for spec in specs]


def free_names(role: Role, taken: Iterable[str], number: int) -> tuple[str, ...]:
    """For so many new workers: the first that nobody has."""
    used = set(taken)
    candidates = (worker_name(role, index) for index in range(len(used) + number))
    return tuple(name for name in candidates if name not in used)[:number]


def _at(spec: ProcessSpec, gpus: list[str]) -> ProcessSpec:
    environ = {**spec.environ, VISIBLE_DEVICES: ",".join(gpus)}
    return dataclasses.replace(spec, environ=environ)


def _free_gpus(gpus: tuple[str, ...], running: Iterable[ProcessSpec]) -> list[str]:
    """A worker that was told of none has whichever there is."""
    workers = [spec for spec in running if spec.ranks]
    if any(VISIBLE_DEVICES not in spec.environ for spec in workers):
        return []
    taken = {gpu for spec in workers for gpu in spec.environ[VISIBLE_DEVICES].split(",")}
    return [gpu for gpu in gpus if gpu not in taken]
