"""How much of others' prefix caches a worker may be given. Pure."""

from __future__ import annotations

from cluster.generation import EngineLoad

COLD_SHARE = 0.5
"""Of its own cached blocks, those that it used longest ago. What comes is handed on in the order of
its last use: of two full caches of one size the hotter halves are then kept, whose every block was
used later than what it takes the place of, as far as two clocks of use can be compared."""


def room_blocks(load: EngineLoad) -> int:
    """Free blocks, and the colder ones of those that are cached."""
    return load.free_blocks + int(load.cached_blocks * COLD_SHARE)
