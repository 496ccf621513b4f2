"""How the ranks of a group keep pace, told from what each has waited for the others by now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.rank_facts import RankWait

LEAST_PLANS = 32
"""That a pace is the mean of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """How a rank stood to the others in the steps between two looks, for each step."""

    rank: int
    step_collectives_ms: float
    """In collectives: what it waited for others, and what moving and adding took."""
    step_wait_ms: float
    """Of that, for others."""
    step_skew_ms: float
    """How much less it waited than the rank that waited most: the time that it came late."""


class PaceMeter:
    """Of one group; its numbers come as often as they may."""

    def __init__(self) -> None:
        self.latest: list[RankPace] = []
        """Over the latest plans, LEAST_PLANS or more; empty until there were as many."""
        self._since: Sequence[RankWait] = ()

    def take(self, waits: Sequence[RankWait]) -> None:
        """Of all ranks, as of now."""
        if num_plans(self._since, waits) >= LEAST_PLANS:
            self.latest = paces(self._since, waits)
            self._since = waits
        elif not self._since:
            self._since = waits


def paces(before: Sequence[RankWait], now: Sequence[RankWait]) -> list[RankPace]:
    """Of the ranks that are in both; none where there was no plan in between."""
    pairs, between = _pairs(before, now), num_plans(before, now)
    if between == 0:
        return []
    to_ms = 1e3 / between
    waits = [late.waited_s - early.waited_s for early, late in pairs]
    return [
        RankPace(
            rank=late.rank,
            step_collectives_ms=to_ms * (late.called_s - early.called_s),
            step_wait_ms=to_ms * waited_s,
            step_skew_ms=to_ms * (max(waits) - waited_s),
        )
        for (early, late), waited_s in zip(pairs, waits, strict=True)
    ]


def skew_s(before: Sequence[RankWait], now: Sequence[RankWait]) -> float:
    """How much longer than the slowest rank the fastest one has waited, for each plan in between;
    0 where there was none."""
    return max((pace.step_skew_ms for pace in paces(before, now)), default=0.0) / 1e3


def num_plans(before: Sequence[RankWait], now: Sequence[RankWait]) -> int:
    """In between, as the rank that has taken most of them says."""
    each = (late.num_plans - early.num_plans for early, late in _pairs(before, now))
    return max(0, max(each, default=0))


def _pairs(before: Sequence[RankWait], now: Sequence[RankWait]) -> list[tuple[RankWait, RankWait]]:
    earlier = {wait.rank: wait for wait in before}
    return [(earlier[wait.rank], wait) for wait in now if wait.rank in earlier]
