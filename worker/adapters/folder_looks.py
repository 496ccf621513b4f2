"""What looks at the folder of adapters have seen of it, and what of that is to be read.

    seen -> the same at the next look: due -> taken -> other files: due again
      ^                                         '-> not found by two looks: gone
    hidden: its storage has not said yet whether it is an adapter

What lies there at the first look is due at once.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from cluster.deadline import Clock
from worker.adapters.shelf_scan import Signature
from worker.adapters.steady_signatures import SteadySignatures


class FolderLooks:
    """Of one worker, by name."""

    def __init__(self, clock: Clock) -> None:
        self._steady = SteadySignatures(clock)
        self._seen: dict[str, Signature] | None = None
        """At the look before; None: there was none that saw anything."""
        self.hidden: set[str] = set()
        """That the last look has found, though their files could not be looked at, or have not
        stayed the same since they can be."""
        self._missing: set[str] = set()
        """What the last look has not found, and the one before had."""
        self._taken: dict[str, Signature] = {}
        """As of the last time that they were read, well or not, or passed over."""

    def note(
        self,
        found: Mapping[str, Signature | None],
        *,
        ordered: Collection[str],
        never_read: Container[str],
    ) -> list[str]:
        """Another look has found these; None: what cannot be looked at now. `ordered`: names that
        orders are about, `never_read`: of these, whose folders have never been read. What lay there
        when the order was given is passed over when it is seen. Returns what is due, in the order
        of the names that were found."""
        found = self._steady.look(found, never_read)
        found = found | dict.fromkeys(self._just_missing(found))
        before, is_first = self._seen or {}, self._seen is None
        now = {name: seen for name in found if (seen := found[name] or before.get(name))}
        self._seen = now
        for name in ordered:
            if is_first or (name in self.hidden and name not in before):
                self.take(name)
        steady = [name for name, seen in now.items() if is_first or before.get(name) == seen]
        self.hidden = (found.keys() - now.keys()) | (self.hidden & now.keys() - set(steady))
        return [name for name in steady if self.is_due(name)]

    def note_read(self, took_s: Mapping[str, float]) -> None:
        """All that was due has been read, each for so many seconds."""
        self._steady.note_read(took_s)

    def forget_gone(self) -> list[str]:
        """Names that were taken, and are not there by the last look."""
        gone = [name for name in self._taken if not self.may_lie(name)]
        for name in gone:
            del self._taken[name]
        return gone

    def may_lie(self, name: str) -> bool:
        """Whether the last look has found a folder of that name, or there was no look."""
        return self._seen is None or name in self._seen or name in self.hidden

    def is_due(self, name: str) -> bool:
        """As it lies in the folder it was not taken."""
        now = (self._seen or {}).get(name)
        return now is not None and self._taken.get(name) != now

    def take(self, name: str, now: Signature | None = None) -> None:
        """It is about to be read, or passed over, and counts once it changes. `now`: as it is known
        to be; None: as the last look has seen it."""
        now = now or (self._seen or {}).get(name)
        if now is not None:
            self._taken[name] = now

    def _just_missing(self, found: Container[str]) -> set[str]:
        """Names that this look has not found for the first time: they may be put in place of others
        at this moment, or their storage have forgotten them."""
        missing = {name for name in (*self._taken, *self.hidden) if name not in found}
        self._missing = missing - self._missing
        return self._missing
