"""What is lost with the workers of a pool that leave."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.scaling.scaler import ScalePlan
from protos.membership_pb2 import MemberState


def losses(members: Iterable[MemberState], plan: ScalePlan) -> list[str]:
    """A line for each worker that leaves: requests go on elsewhere, and so does what it has cached,
    as far as others have room."""
    found = {state.member.worker_id: state for state in members}
    lines = [_loss(found[name]) if name in found else f"{name} leaves" for name in plan.leaving]
    num_chosen = plan.size_before - plan.size - len(plan.leaving)
    if num_chosen > 0:
        lines.append(
            f"{num_chosen} of {plan.pool} leave, and Kubernetes chooses which: "
            "their requests end there or go on elsewhere, their cached tokens are handed on as far "
            "as others have room"
        )
    return lines


def _loss(state: MemberState) -> str:
    tokens = state.indexed_blocks * state.member.pairing.block_size_tokens
    return (
        f"{state.member.worker_id} leaves: its {state.num_in_flight} request(s) end there or go on "
        f"elsewhere, {tokens} cached tokens are handed on as far as others have room"
    )
