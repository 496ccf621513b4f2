"""Memory that this process can still have: of the machine, or of its container if that is less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.process.cgroup import OWN_CGROUPS, Cgroups

_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of cgroup v2 and v1: the limit, what is in use, and its name for what of this can be dropped."""


def free_memory_bytes(cgroups: Cgroups = OWN_CGROUPS) -> int:
    """Now."""
    available = int(psutil.virtual_memory().available)
    left = container_bytes_left(cgroups)
    return available if left is None else min(available, left)


def whole_memory_bytes(cgroups: Cgroups = OWN_CGROUPS) -> int:
    """What there would be if nobody used any."""
    bounds = [limit.bound_bytes for limit in _limits(cgroups)]
    return min([int(psutil.virtual_memory().total), *bounds])


def free_memory_share(cgroups: Cgroups = OWN_CGROUPS) -> float:
    """Of the whole memory, the part that is free now."""
    return min(1.0, free_memory_bytes(cgroups) / whole_memory_bytes(cgroups))


def container_bytes_left(cgroups: Cgroups = OWN_CGROUPS) -> int | None:
    """The least that the limits around this process leave; None without a limit.

    Files that were read once and are still cached do not count as in use, as for the kubelet: the
    kernel drops them for whoever needs the memory. A model's own file is one of them.
    """
    return min((limit.left_bytes for limit in _limits(cgroups)), default=None)


@dataclass(frozen=True, slots=True)
class _Limit:
    bound_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        return max(0, self.bound_bytes - self.used_bytes)


def _limits(cgroups: Cgroups) -> Iterator[_Limit]:
    for folder in cgroups.folders("memory"):
        for limit, usage, droppable in _FILES:
            try:
                bound = int((folder / limit).read_text())
                used = int((folder / usage).read_text()) - _counted(folder, droppable)
            except (OSError, ValueError):  # "max" is no number
                continue
            yield _Limit(bound, max(0, used))


def _counted(folder: Path, name: str) -> int:
    """A line of memory.stat; 0 where it is not told."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
