"""The growths of a role's pools, by the signal that asked for them, and whether they have helped.

grown  ->  the workers are there, and the signal is where it was: more of them would not help either
       ->  the signal has changed, for half a minute: nothing is known of it any more

Decode steps of a large model on a slow GPU take as long for one sequence as for ten: no number of
workers makes them shorter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CHANGED = 0.25
"""Part of what new workers take off a signal that goes by the load of each: from two to four, half.
A signal that has fallen by less than this part of it, an eighth then, has not been helped."""


@dataclass(frozen=True, slots=True)
class PastGrowth:
    """The last for one signal, as it was when more workers were asked for."""

    ratio: float
    num_ready: int

    def has_come(self, num_ready: int) -> bool:
        """There are more workers than there were."""
        return num_ready > self.num_ready

    def has_changed(self, ratios: Sequence[float], num_ready: int) -> bool:
        """At each of these looks, in one direction: down, or up with the load. Before the new
        workers have come as much as a quarter."""
        part = CHANGED
        if self.has_come(num_ready):
            part *= 1 - self.num_ready / num_ready
        has_fallen = max(ratios) <= self.ratio * (1 - part)
        return has_fallen or min(ratios) >= self.ratio * (1 + part)


Growths = Mapping[str, PastGrowth]
"""By signal."""


def still_known(growths: Growths, signal: str, ratios: Sequence[float], num_ready: int) -> Growths:
    """Those whose signal is where it was. `ratios`: of the highest signals of late, `signal` now:
    another one is not above them, so that it has fallen where they are low, and no more is known
    of it."""
    return {
        name: growth
        for name, growth in growths.items()
        if not growth.has_changed(ratios if name == signal else (0.0, max(ratios)), num_ready)
    }
