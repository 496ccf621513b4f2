"""How much somebody is shown."""

from __future__ import annotations

import enum


class Sight(enum.StrEnum):
    """The least first."""

    NOTHING = "nothing"
    """A stranger: the way to sign in, and no fact about the fleet."""
    COUNTS = "counts"
    """Somebody on this machine: what /metrics tells, and nobody's name but the workers'."""
    NAMES = "names"
    """An operator: tenants and requests by their names."""
