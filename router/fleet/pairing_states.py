"""Which pairings a router's workers are of, and who has nobody to pair with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cluster.identity import Role
from router.fleet.member import FleetMember


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingState:
    """Workers that can pair with each other, of those that take work."""

    digest: str
    model_digest: str
    num_prefill: int
    num_decode: int
    is_served: bool
    """New requests go to its model."""
    lacks: Role | None
    """Whom its workers have no partner of, though there are some in the fleet."""


def pairing_states(members: Iterable[FleetMember], chosen: str | None) -> list[PairingState]:
    """By digest; those of the model that is `chosen` first."""
    at_work = [item for item in members if item.takes_work]
    has_prefill = any(not item.is_decode for item in at_work)
    by_key: dict[str, list[FleetMember]] = {}
    for item in at_work:
        by_key.setdefault(item.pairing_key, []).append(item)
    states = [_state(items, chosen, has_prefill) for items in by_key.values()]
    return sorted(states, key=lambda state: (not state.is_served, state.digest))


def _state(items: list[FleetMember], chosen: str | None, has_prefill: bool) -> PairingState:
    pairing = items[0].member.pairing
    num_decode = sum(item.is_decode for item in items)
    num_prefill = len(items) - num_decode
    reads = any(item.is_decode and item.member.kv_transport for item in items)
    lacks = None
    if not num_decode and not all(item.pooling for item in items):
        lacks = Role.DECODE
    elif not num_prefill and has_prefill and reads:
        lacks = Role.PREFILL
    return PairingState(
        digest=pairing.digest,
        model_digest=pairing.model_digest,
        num_prefill=num_prefill,
        num_decode=num_decode,
        is_served=chosen is None or pairing.model_digest == chosen,
        lacks=lacks,
    )
