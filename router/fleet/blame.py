"""Whose fault failed handoffs are, as far as the decode workers agree.

A decode worker that cannot read from anybody blames every prefill worker: its word alone, where
others could say the same and do not, is held against nobody.
"""

from __future__ import annotations

from cluster.identity import WorkerKey

ENOUGH_READERS = 2


class Blame:
    """Which decode workers have failed with which prefill worker since it last served anybody."""

    def __init__(self) -> None:
        self._readers: dict[WorkerKey, set[WorkerKey]] = {}

    def failed(self, source: WorkerKey, reader: WorkerKey, *, num_readers: int) -> bool:
        """True when enough of `num_readers` decode workers agree that it is the source's fault."""
        readers = self._readers.setdefault(source, set())
        readers.add(reader)
        return len(readers) >= min(ENOUGH_READERS, num_readers)

    def succeeded(self, source: WorkerKey) -> None:
        """It has served somebody: who says otherwise begins anew."""
        self._readers.pop(source, None)

    def forget(self, worker: WorkerKey) -> None:
        """The process is gone, of whatever role."""
        self._readers.pop(worker, None)
        for readers in self._readers.values():
            readers.discard(worker)
