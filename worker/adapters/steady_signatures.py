"""What looks say of an adapter's files, where the time of their status may change by itself.

That time alone tells a swap of files that have one size and one time of their contents: adapters of
one rank have one size, and what comes by tar, rsync or in an image has the times of its source.
But some mounts make it up. So it counts where it is the only change, and then not again for
AGAIN_S: reading the same bytes once more changes nothing, and takes its time.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from cluster.deadline import Clock
from worker.adapters.shelf_scan import Signature, contents_of

AGAIN_S: Final = 600.0


class SteadySignatures:
    """Of one worker, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Signature] = {}
        self._again_s: dict[str, float] = {}
        """When the time of a status may count again."""

    def look(
        self, found: Mapping[str, Signature | None], passed_over: Container[str]
    ) -> dict[str, Signature | None]:
        """What a look has found, as it counts. `passed_over`: never read, as an operator's order is
        about the name: of these that time never counts."""
        known = {name: sign for name, sign in self._known.items() if name in found}
        self._again_s = {name: due_s for name, due_s in self._again_s.items() if name in found}
        for name, now in found.items():
            if now is not None and self._counts(name, known.get(name), now, passed_over):
                known[name] = now
        self._known = known
        return {name: None if now is None else known[name] for name, now in found.items()}

    def _counts(
        self, name: str, before: Signature | None, now: Signature, passed_over: Container[str]
    ) -> bool:
        if before is None or contents_of(before) != contents_of(now):
            return True
        now_s = self._clock()
        if before == now or name in passed_over or now_s < self._again_s.get(name, now_s):
            return False
        self._again_s[name] = now_s + AGAIN_S
        return True
