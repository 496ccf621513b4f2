"""Requests that wait for their adapters, in the order in which they came, and by adapter."""

from __future__ import annotations

from collections.abc import Iterator

from engine.step.requests.adapter_use import AdapterUse


class WaitingUses:
    """Of one engine."""

    def __init__(self) -> None:
        self._all: dict[AdapterUse, None] = {}
        self._of: dict[str, dict[AdapterUse, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[AdapterUse]:
        """Who came first is the first."""
        return iter(list(self._all))

    @property
    def digests(self) -> list[str]:
        """Of adapters that somebody waits for."""
        return list(self._of)

    def waits_for(self, digest: str | None) -> bool:
        """Whether somebody waits for that adapter."""
        return digest in self._of

    def of(self, digest: str) -> list[AdapterUse]:
        """Who waits for that adapter."""
        return list(self._of.get(digest, ()))

    def add(self, use: AdapterUse) -> None:
        """Behind all others."""
        self._all[use] = None
        self._of.setdefault(use.digest, {})[use] = None

    def remove(self, use: AdapterUse) -> None:
        """It waits no more; no effect on one that does not wait."""
        if use not in self._all:
            return
        del self._all[use], self._of[use.digest][use]
        if not self._of[use.digest]:
            del self._of[use.digest]
