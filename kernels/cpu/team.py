"""How many threads the native kernels run on: a team of their own, beside torch's.

Process-wide, as the team is. Until it is told, every core of the affinity mask: whoever runs
kernels knows the quota of the container, and resizes it (`cluster.supervisor.cores`).
"""

from __future__ import annotations

import os


def _usable_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


class Team:
    """The caller of a kernel and its helpers."""

    __slots__ = ("num_threads",)

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads

    def resize(self, num_threads: int) -> None:
        """From the next kernel on. Results do not depend on it. Raises ValueError below 1."""
        if num_threads < 1:
            raise ValueError(f"a team of {num_threads} threads; needed: 1 or more")
        self.num_threads = num_threads


TEAM = Team(_usable_cores())
