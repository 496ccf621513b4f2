"""Which pool a member of a fleet is of."""

from __future__ import annotations

from protos.membership_pb2 import Member


def pool_name(member: Member) -> str:
    """What it says; who says nothing is of the only pool of its role, which has the role's name."""
    return member.pool or member.role
