"""What a planner remembers of one role from look to look; nothing outlives its process.

    over      pressure has been above the target since then, at every look
    calm      one worker less would have been enough since then, at every look, and none was held
    standing  the pools are settled, or are not, since then
    changed   a pool's size was changed last, by anybody, or was tried to be
    tried     this planner has tried to
    recent    pressures of the last looks, for where they go
    growths   signals that the pools were made larger for, where they are as they were then

Whoever has not looked for a while knows nothing of that time: what was over or calm begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cluster.planner_options import PlanRules
from planner.growth import Growths, PastGrowth, still_known
from planner.sight import HIGHEST, RoleSight

TOLERANCE = 1.1
"""Times the target: a pressure below that is at it, as for a HorizontalPodAutoscaler."""
CALM = 0.8
"""Part of the target that a smaller pool has to be under: else it would soon grow again."""
MOST_BUSY = 0.8
"""Of blocks and places of a smaller pool: what runs has to fit, and to grow."""
MOST_AT_WORK = 0.7
"""Of a smaller pool's time, computing prompts. Up to that a line is short, and its wait says little
of how much more work it would take: a pool that is at 95 % has none most of the time."""
_RECENT_S = 30.0
_MISSED_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Memory:
    """Times of the planner's clock; None: it is not so now, or was never."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    looked_s: float | None = None
    over_since_s: float | None = None
    calm_since_s: float | None = None
    is_settled: bool = True
    standing_since_s: float = 0.0
    changed_s: float | None = None
    tried_s: float | None = None
    recent: tuple[tuple[float, float], ...] = ()
    """Moments and pressures, the newest last."""
    growths: Growths = field(default_factory=dict)

    def after(self, sight: RoleSight, rules: PlanRules, now_s: float) -> Memory:
        """With one look more."""
        sizes = {pool.name: pool.num_wanted for pool in sight.pools}
        is_first = self.looked_s is None
        is_same = not is_first and sight.is_settled == self.is_settled
        is_changed = not is_first and sizes != self.sizes
        over, calm = self._unbroken(rules, now_s)
        recent = (
            *(each for each in self.recent if now_s - each[0] <= _RECENT_S),
            (now_s, sight.pressure.ratio),
        )
        ratios = [ratio for _, ratio in recent]
        return Memory(
            sizes=sizes,
            looked_s=now_s,
            over_since_s=_since(over, now_s) if is_over(sight, rules) else None,
            calm_since_s=_since(calm, now_s) if is_calm(sight, rules) else None,
            is_settled=sight.is_settled,
            standing_since_s=self.standing_since_s if is_same else now_s,
            changed_s=now_s if is_changed else self.changed_s,
            tried_s=self.tried_s,
            recent=recent,
            growths=still_known(self.growths, sight.pressure.signal, ratios, sight.num_ready),
        )

    def tried(self, now_s: float) -> Memory:
        """After an order, whatever came of it: the next one waits as long."""
        return replace(self, changed_s=now_s, tried_s=now_s)

    def grown(self, sight: RoleSight) -> Memory:
        """After an order for more that was begun. What is beyond all measure is not remembered: by
        it nobody could tell whether it has fallen."""
        if sight.pressure.ratio >= HIGHEST:
            return self
        growth = PastGrowth(sight.pressure.ratio, sight.num_ready)
        return replace(self, growths={**self.growths, sight.pressure.signal: growth})

    def rested_s(self, now_s: float) -> float:
        """Since the last change was whole."""
        if self.changed_s is None:
            return float("inf")
        return now_s - max(self.changed_s, self.standing_since_s)

    def eased_in_s(self, ratio: float) -> float:
        """Until the pressure is that low, where it goes on as it did; infinite where it grows."""
        (first_s, first), (last_s, last) = self.recent[0], self.recent[-1]
        if first <= last:
            return float("inf")
        return max(0.0, (last - ratio) * (last_s - first_s) / (first - last))

    def _unbroken(self, rules: PlanRules, now_s: float) -> tuple[float | None, float | None]:
        gap_s = 0.0 if self.looked_s is None else now_s - self.looked_s
        if gap_s > max(1.0, _MISSED_LOOKS * rules.look_interval_s):
            return None, None
        return self.over_since_s, self.calm_since_s


def is_over(sight: RoleSight, rules: PlanRules) -> bool:
    """More workers are needed than are ready."""
    return sight.pressure.ratio > TOLERANCE * rules.scale_target


def is_calm(sight: RoleSight, rules: PlanRules) -> bool:
    """It may get smaller, if it stays so. Beside a worker that is held it may not: that one is gone
    for requests already, and comes back, or goes, by whoever holds it."""
    return not sight.num_held and one_less_is_enough(sight, rules)


def one_less_is_enough(sight: RoleSight, rules: PlanRules) -> bool:
    """Nobody waits, the others would be under the target, and what there is to do and to keep fits
    at them: of that a pressure of lines says nothing while there is none, and one of blocks not how
    many are left."""
    if sight.num_ready < 2 or sight.num_in_line or not sight.is_seen:
        return False
    more = sight.num_ready / (sight.num_ready - 1)
    is_low = sight.pressure.ratio * more <= CALM * rules.scale_target
    fits = sight.busy_share * more <= MOST_BUSY and sight.work_share * more <= MOST_AT_WORK
    return is_low and fits


def _since(since_s: float | None, now_s: float) -> float:
    return now_s if since_s is None else since_s
