"""Memory that this process can still have: of the machine, or of its container if that is less."""

from __future__ import annotations

from pathlib import Path

import psutil

_ROOT = Path("/sys/fs/cgroup")
_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Of cgroup v2 and v1: the limit, and what is in use."""


def free_memory_bytes(cgroup: Path = _ROOT) -> int:
    """Now."""
    available = int(psutil.virtual_memory().available)
    left = container_bytes_left(cgroup)
    return available if left is None else min(available, left)


def container_bytes_left(cgroup: Path = _ROOT) -> int | None:
    """None without a limit. Files that are only cached count as in use: what is left is sure."""
    for limit, usage in _FILES:
        try:
            bound = int((cgroup / limit).read_text())
            return max(0, bound - int((cgroup / usage).read_text()))
        except (OSError, ValueError):  # "max" is no number
            continue
    return None
