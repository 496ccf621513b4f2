"""Which workers of a pool go with the least loss."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.scaling.pool_name import pool_name
from protos.membership_pb2 import MemberState


def least_to_lose(members: Iterable[MemberState], pool: str, number: int) -> list[str]:
    """So many workers of a pool: who is held already, of the others who has the fewest requests, of
    these the smallest cache, of these the last name."""
    of_pool = [state for state in members if pool_name(state.member) == pool]
    by_name = sorted(of_pool, key=lambda state: state.member.worker_id, reverse=True)
    by_loss = sorted(
        by_name, key=lambda state: (not state.hold, state.num_in_flight, state.indexed_blocks)
    )
    return [state.member.worker_id for state in by_loss[: max(0, number)]]
