"""Which members of a fleet are of a pool, and which of them go with the least loss."""

from __future__ import annotations

from collections.abc import Iterable

from protos.membership_pb2 import Member, MemberState


def pool_name(member: Member) -> str:
    """What it says; who says nothing is of the only pool of its role, which has the role's name."""
    return member.pool or member.role


def least_to_lose(members: Iterable[MemberState], pool: str, number: int) -> list[str]:
    """So many workers of a pool: who is held already, of the others who has the fewest requests, of
    these the smallest cache, of these the last name."""
    of_pool = [state for state in members if pool_name(state.member) == pool]
    by_name = sorted(of_pool, key=lambda state: state.member.worker_id, reverse=True)
    by_loss = sorted(
        by_name, key=lambda state: (not state.hold, state.num_in_flight, state.indexed_blocks)
    )
    return [state.member.worker_id for state in by_loss[: max(0, number)]]
