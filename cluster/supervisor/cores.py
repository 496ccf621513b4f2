"""CPU cores: how many this process may use, and how workers share them."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota_file: Path = _CGROUP_QUOTA) -> int:
    """Cores that the affinity mask and the container's quota leave us; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)
    return max(1, min(cores, _quota_cores(quota_file) or cores))


def threads_per_worker(num_cores: int, num_workers: int) -> int:
    """Threads for each engine when the operator named none: an equal share of the cores.

    An engine's threads meet at a barrier after every matrix product and spin while they wait. With
    more threads than cores one of them is off its core at almost every barrier, and the others burn
    their time slices for it: two engines with all cores each are slower together than with half
    each, and their tail is far longer. An equal share leaves cores idle while only one pool has
    work; the operator who prefers the other trade says `--num-threads`. A colocated deployment has
    one worker, and so gets every core.
    """
    return max(1, num_cores // max(1, num_workers))


def _quota_cores(quota_file: Path) -> int | None:
    """Cores of a cgroup v2 quota, rounded up; None without one."""
    try:
        quota, period = quota_file.read_text().split()[:2]
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None
