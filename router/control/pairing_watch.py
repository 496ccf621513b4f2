"""What a scrape is told of a fleet's pairings."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from cluster.identity import Role
from router.control.join_rules import OwnModel
from router.fleet.fleet import Fleet
from router.fleet.pairing_states import pairing_states
from router.telemetry.pairing_metrics import PairingCount, PairingMetrics


def watch_pairings(fleet: Fleet, own: OwnModel, registry: CollectorRegistry) -> None:
    """Called once; each scrape asks."""

    def counts() -> Iterator[PairingCount]:
        for state in pairing_states(fleet.members, fleet.chosen_model):
            for role, num in ((Role.PREFILL, state.num_prefill), (Role.DECODE, state.num_decode)):
                if num:
                    yield PairingCount(state.digest, role.value, num, num if state.lacks else 0)

    def serves_own() -> bool:
        served = (item.member.pairing.weights_digest for item in fleet.served(Role.DECODE))
        return own.weights_digest is None or all(each == own.weights_digest for each in served)

    registry.register(PairingMetrics(counts, serves_own))
