"""What an engine tells of itself when it is asked: promises that are broken, and what is cached."""

from __future__ import annotations

from engine.contract.commands import Inspect
from engine.contract.messages import Inspection
from engine.contract.warm_blocks import WarmBlocks
from engine.step.adapting import Adapting
from engine.step.masking import Masking
from engine.step.placement import Placement
from engine.step.requests.table import RequestTable
from engine.step.warm_list import WarmList


class Inspector:
    """Reads the owners of an engine, between two steps."""

    def __init__(
        self,
        placement: Placement,
        table: RequestTable,
        masking: Masking,
        adapters: Adapting | None,
    ) -> None:
        self._placement = placement
        self._table = table
        self._masking = masking
        self._adapters = adapters
        self._warm = WarmList(placement.pool, placement.cache)

    def answer(self, command: Inspect) -> Inspection:
        """What it asks for, and nothing else."""
        return Inspection(
            token=command.token,
            violations=self.check_invariants() if command.check_invariants else [],
            snapshot=self._placement.cache.snapshot() if command.snapshot_cache else [],
            warm=WarmBlocks() if (first := command.warm_from) is None else self._warm.part(first),
        )

    def check_invariants(self) -> list[str]:
        """Broken promises of pool, cache and table, in words; empty is good."""
        found = self._placement.pool.check_invariants() + self._table.check_invariants()
        found += self._masking.check_invariants()
        if self._table.leases() != self._placement.pool.leases:
            found.append("the pool's leases are not those that requests answer for")
        return found + ([] if self._adapters is None else self._adapters.check_invariants())
