"""Where the router dials a worker of its fleet: every `Dialer` call to a member takes its address
from here, for the fleet's join token goes with it.

Other engines' servers are members as well, and some are found where others than the fleet may
write: they are spoken to by their adapter alone (`worker_link.py`), and never shown the token.
"""

from __future__ import annotations

from cluster.errors import InvalidRequest
from cluster.membership.member import Member


def own_address(member: Member) -> str:
    """Raises InvalidRequest for a member that is no worker of our own."""
    if not member.pairing.is_ours:
        engine = member.version or "another engine"
        raise InvalidRequest(
            f"{member.worker_id} is a server of {engine}, and no worker of ours: it takes no such "
            "question or order",
            param="worker_id",
        )
    return member.address
