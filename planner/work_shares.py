"""How much of their time workers compute prompts, by role, from what their steps took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cluster.deadline import Clock
from protos.membership_pb2 import MemberState

MEMORY_S = 60.0
"""What was longer ago hardly counts: prompts come in bursts."""
_SHORTEST_S = 0.5
_Worker = tuple[str, str]


class WorkShares:
    """From one event loop. Workers that tell no times count as idle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s = clock()
        self._busy_s: dict[_Worker, float] = {}
        self._shares: dict[str, float] = {}

    def after(self, members: Iterable[MemberState]) -> Mapping[str, float]:
        """With one look more. Of a worker the first look says nothing."""
        states, now_s = list(members), self._clock()
        gap_s = now_s - self._seen_s
        if gap_s < _SHORTEST_S and self._busy_s:
            return self._shares
        busy_s = {_worker(state): state.load.prefill_busy_s for state in states}
        weight = 1 - math.exp(-gap_s / MEMORY_S)
        for role in {state.member.role for state in states}:
            known = [_worker(s) for s in states if s.member.role == role]
            used = [busy_s[each] - self._busy_s[each] for each in known if each in self._busy_s]
            if used and gap_s > 0:
                share = min(1.0, max(0.0, sum(used) / (len(used) * gap_s)))
                before = self._shares.get(role, share)
                self._shares[role] = before + weight * (share - before)
        self._seen_s, self._busy_s = now_s, busy_s
        return self._shares


def _worker(state: MemberState) -> _Worker:
    return state.member.worker_id, state.member.incarnation
