"""What went over the link of each pair of a prefill and a decode worker, for operators."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.identity import Role
from protos.fleet_watch_pb2 import KvLink
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.pricing.estimates import Estimates, link_bytes_per_s

NEVER_MEET = "their pairings differ: see the notes of `splitserve explain`"


class KvLinks:
    """Of one router. From the event loop only."""

    def __init__(self, fleet: Fleet, estimates: Estimates) -> None:
        self._fleet = fleet
        self._estimates = estimates

    @property
    def usual_bytes_per_s(self) -> float:
        """That a link is priced with which was not measured lately: of all, or the default."""
        return link_bytes_per_s(self._estimates.kv_bytes_per_s, 0.0)

    def __iter__(self) -> Iterator[KvLink]:
        """Of every pair, in no order."""
        rates = dict(self._estimates.links.rates())
        decode = self._fleet.with_role(Role.DECODE)
        for source in self._fleet.with_role(Role.PREFILL):
            for reader in decode:
                yield self._link(source, reader, rates.get((source.key, reader.key)))

    def _link(self, source: FleetMember, reader: FleetMember, rate: float | None) -> KvLink:
        total = self._estimates.link_totals.of((source.key, reader.key))
        return KvLink(
            prefill_worker=source.key.worker_id,
            decode_worker=reader.key.worker_id,
            num_transfers=total.num_transfers,
            num_bytes=total.num_bytes,
            num_failed=total.num_failed,
            bytes_per_s=rate,
            problem="" if source.pairing_key == reader.pairing_key else NEVER_MEET,
        )
