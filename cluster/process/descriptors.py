"""How many files and connections this process may have open.

Systems give a process few to begin with, often 1024, and let it take many more: the first limit is
for programs that use `select`, which knows no higher descriptor. None of ours do.
"""

from __future__ import annotations

import resource


def as_many_descriptors_as_allowed() -> int:
    """Raises the process's soft limit to its hard one, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
