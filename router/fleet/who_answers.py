"""Who answers requests: decode workers, and prefill workers for prompts that they pool.

A fleet that no decode worker has ever joined is whole with prefill workers that pool; once one has,
the fleet makes text, and is not ready without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.identity import Role
from cluster.membership.member import Member
from router.fleet.member import FleetMember


class WhoAnswers:
    """Of one fleet, whose `members` are asked for each time. From the event loop only."""

    def __init__(self, members: Callable[[], Iterable[FleetMember]]) -> None:
        self._members = members
        self._had_decode = False

    def joins(self, member: Member) -> bool:
        """A worker comes; True where requests are sent to it."""
        is_decode = member.role is Role.DECODE
        self._had_decode |= is_decode
        return is_decode or bool(member.pooling)

    def why_not_ready(self) -> str | None:
        """None when a request that came now could be served; else what is missing, in words."""
        is_whole = not self._had_decode and any(i.pooling and i.takes_work for i in self._members())
        return None if is_whole else self.why_none()

    def why_none(self, pooling: str = "") -> str | None:
        """None when somebody takes requests for tokens, or prompts that are pooled so; else what is
        missing, in words."""
        if pooling:
            able = any(i.pooling == pooling and i.takes_work for i in self._members())
            return None if able else f"no prefill worker with --pooling {pooling} takes new work"
        for item in self._members():
            if item.is_decode and item.takes_work:
                return None
        if not (num_decode := sum(item.is_decode for item in self._members())):
            return "no decode worker has joined"
        return f"none of {num_decode} decode workers is connected and takes new work"
