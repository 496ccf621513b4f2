"""CPU cores that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from cluster.process.cgroup import OWN_CGROUPS, Cgroups


def available_cores(cgroups: Cgroups = OWN_CGROUPS) -> int:
    """Cores that the affinity mask and the quotas of our containers leave us; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)
    return max(1, min([cores, *_quotas(cgroups)]))


def _quotas(cgroups: Cgroups) -> Iterator[int]:
    """Cores that each group with a quota allows, rounded up."""
    for folder in cgroups.folders("cpu"):
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # v2, v1
            try:
                yield _quota_cores([folder / name for name in files])
            except (OSError, ValueError, ZeroDivisionError):  # "max" and -1: none
                continue


def _quota_cores(files: list[Path]) -> int:
    quota, period = (int(word) for file in files for word in file.read_text().split())
    if quota < 0:
        raise ValueError(quota)
    return math.ceil(quota / period)
