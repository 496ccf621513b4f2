"""What looks say of an adapter's files, where the time of their status may change by itself.

That time alone tells a swap of files that have one size and one time of their contents: adapters of
one rank have one size, and what comes by tar, rsync or in an image has the times of its source.
But some mounts make it up. So it counts where it is the only change, and then rests: reading the
same bytes once more changes nothing, and takes its time.

    steady --another time of status: it counts--> rests for FIRST_S --> at the end of the rest:
      ^                                                                 |
      |<---------- no other comes for LONGEST_S ------------------------|
                   another: it counts, and rests twice as long <--------'

A rest begins anew once the files have been read, and is ten times as long as all such readings of
its look took together: on a mount that makes times up each look would have all files to read, and
storage no pause from any worker. LONGEST_S is the limit of that, too.

What comes while it rests counts at the end of the rest, so none is lost: a swap that is taken back,
or whose second file comes later than the first.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from cluster.deadline import Clock
from worker.adapters.shelf_scan import Signature, contents_of

FIRST_S: Final = 2.0
"""Two looks: what counts at each of them is never read, as it has not stayed the same."""
LONGEST_S: Final = 600.0
REST_PER_READING: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Rest:
    length_s: float
    until_s: float


class SteadySignatures:
    """Of one worker, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Signature] = {}
        self._rests: dict[str, _Rest] = {}
        """The last one of each that has had any."""

    def look(
        self, found: Mapping[str, Signature | None], passed_over: Container[str]
    ) -> dict[str, Signature | None]:
        """What a look has found, as it counts. `passed_over`: never read, as an operator's order is
        about the name: of these that time never counts."""
        known = {name: sign for name, sign in self._known.items() if name in found}
        self._rests = {name: rest for name, rest in self._rests.items() if name in found}
        for name, now in found.items():
            if now is not None and self._counts(name, known.get(name), now, passed_over):
                known[name] = now
        self._known = known
        return {name: None if now is None else known[name] for name, now in found.items()}

    def note_read(self, took_s: Mapping[str, float]) -> None:
        """A look has read these to its end, each for so many seconds."""
        again = {name: rest for name, rest in self._rests.items() if name in took_s}
        least_s = REST_PER_READING * sum(took_s[name] for name in again)
        for name, rest in again.items():
            length_s = min(max(rest.length_s, least_s), LONGEST_S)
            self._rests[name] = _Rest(length_s, self._clock() + length_s)

    def _counts(
        self, name: str, before: Signature | None, now: Signature, passed_over: Container[str]
    ) -> bool:
        if before is None or contents_of(before) != contents_of(now):
            return True
        if before == now or name in passed_over:
            return False
        now_s, rest = self._clock(), self._rests.get(name)
        if rest is not None and now_s < rest.until_s:
            return False
        length_s = FIRST_S
        if rest is not None and now_s < rest.until_s + LONGEST_S:
            length_s = min(2.0 * rest.length_s, LONGEST_S)
        self._rests[name] = _Rest(length_s, now_s + length_s)
        return True
