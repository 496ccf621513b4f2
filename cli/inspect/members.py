"""The router's members, as each told it with its last beat."""

from __future__ import annotations

from cli.question import ROUTER_TIMEOUT_S, NotFound
from cluster.dial.dialer import OperatorLink
from protos import membership_pb2

Seen = membership_pb2.MemberState


async def members_of(router: OperatorLink) -> membership_pb2.MembersResponse:
    """The router's view, its members in the order of roles and names."""
    answer = await router.members(timeout_s=ROUTER_TIMEOUT_S)
    states = sorted(answer.members, key=lambda seen: (seen.member.role, seen.member.worker_id))
    del answer.members[:]
    answer.members.extend(states)
    return answer


def the_worker(answer: membership_pb2.MembersResponse, worker_id: str) -> Seen:
    """Raises NotFound."""
    for seen in answer.members:
        if seen.member.worker_id == worker_id:
            return seen
    known = ", ".join(seen.member.worker_id for seen in answer.members) or "none"
    raise NotFound(f"no worker {worker_id!r} has joined; there are: {known}")
