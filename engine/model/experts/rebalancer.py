"""When which layer's experts change their ranks: the conductor's policy. No tensor, no thread.

    waiting  --the interval is over--------> Measure: the layer that gains most is planned
    planned  --it is worth it--------------> Stage: all ranks read what they gain
    reading  --again and again-------------> Place: exchanged, once all have read; then waiting
    reading  --not all have read in time---> Drop: given up; then waiting, each time longer

One layer at a time, so that a rank holds at most one layer's gain besides its own. Nothing here
fails a step: a plan that goes wrong is said in the log, and tried again later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from cluster.deadline import Clock
from cluster.models.expert_placement import ExpertPlacement
from cluster.models.expert_plan import PlacementPlan, imbalance, plan_placement
from cluster.process.backoff import Backoff
from engine.model.experts.balance import ExpertBalance
from engine.model.experts.words import Drop, ExpertWord, Measure, Stage, place, stage

_LOG = structlog.get_logger()

LEAST_PICKS: Final = 1000
"""Of a layer since the last measurement, for its loads to say something."""
MAX_MOVES: Final = 16
"""Experts of a layer that change their ranks at once."""
READING_LIMIT_S: Final = 60.0
"""How long ranks may take to read what they gain."""
FIRST_TRY_S: Final = 0.1
"""After which ranks are asked for the first time whether they have read."""
LONGEST_WAIT_S: Final = 600.0
"""Between failures."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A plan under way."""

    layer: int
    plan: PlacementPlan
    tries: Backoff
    give_up_s: float


class Rebalancer:
    """Asked between steps for a word to all ranks, and told what came of it."""

    def __init__(
        self,
        placements: Mapping[int, ExpertPlacement],
        interval_s: float,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        """`placements` of each layer with experts, as they change; `interval_s` lies between the
        end of one rebalance and the next measurement."""
        self._placements, self._interval_s, self._clock = placements, interval_s, clock
        self._failures = Backoff(first_s=interval_s, longest_s=max(interval_s, LONGEST_WAIT_S))
        self._due_s = clock() + interval_s
        self._seen: Mapping[int, Sequence[int]] = {}
        self._reading: _Reading | None = None
        self.balance = ExpertBalance()

    @property
    def is_reading(self) -> bool:
        """A plan is under way, for which ranks hold memory."""
        return self._reading is not None

    def next_word(self) -> ExpertWord | None:
        """To be followed by all ranks, here as well; None: nothing to do yet."""
        now_s = self._clock()
        if now_s < self._due_s:
            return None
        if self._reading is None:
            return Measure()
        if now_s >= self._reading.give_up_s:
            return Drop()
        return place(self._reading.layer, self._reading.plan.placement)

    def measured(self, picks: Sequence[Sequence[int]]) -> Stage | None:
        """After Measure: of each layer and expert, since the model was loaded. What to stage, at
        once; None: nothing is worth it."""
        self._due_s = self._clock() + self._interval_s
        try:
            loads = self._loads_since(picks)
            self.balance.imbalance = {
                layer: imbalance(own, self._placements[layer]) for layer, own in loads.items()
            }
            return self._begin(loads)
        except Exception as error:
            _LOG.exception("experts could not be balanced; it is tried again later")
            self._fail(str(error))
            return None

    def tried(self, *, is_placed: bool) -> None:
        """After Place."""
        assert self._reading is not None
        if is_placed:
            self._finish(self._reading)
        else:
            self._due_s = self._clock() + self._reading.tries.next_delay_s(healthy_s=0.0)

    def dropped(self) -> None:
        """After Drop."""
        self._fail("not all ranks could read what they gain")

    def _loads_since(self, picks: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """By layer, since the last measurement. The first one is where the counting begins: what
        was picked before, in the warm-up, says nothing."""
        before, self._seen = self._seen, {layer: picks[layer] for layer in self._placements}
        return {
            layer: [now - then for now, then in zip(self._seen[layer], counted, strict=True)]
            for layer, counted in before.items()
        }

    def _begin(self, loads: Mapping[int, list[int]]) -> Stage | None:
        """With the layer whose busiest group is furthest above the mean, of those that gain."""
        used = [layer for layer, own in loads.items() if sum(own) >= LEAST_PICKS]
        for layer in sorted(used, key=lambda layer: -self.balance.imbalance[layer]):
            plan = plan_placement(loads[layer], self._placements[layer], max_moves=MAX_MOVES)
            if plan is not None:
                return self._read(layer, plan)
        return None

    def _read(self, layer: int, plan: PlacementPlan) -> Stage:
        now_s = self._clock()
        tries = Backoff(first_s=FIRST_TRY_S, longest_s=READING_LIMIT_S / 10)
        self._reading = _Reading(layer, plan, tries, now_s + READING_LIMIT_S)
        self._due_s = now_s + FIRST_TRY_S
        return stage(layer, plan.placement)

    def _finish(self, reading: _Reading) -> None:
        plan = reading.plan
        self._reading, self._due_s = None, self._clock() + self._interval_s
        self._failures.start_anew()
        self.balance.num_rebalances += 1
        _LOG.info(
            "a layer's experts have changed their ranks",
            layer=reading.layer,
            num_moved=plan.num_moves,
            imbalance_before=round(plan.imbalance_before, 3),
            imbalance_expected=round(plan.imbalance_after, 3),
        )

    def _fail(self, cause: str) -> None:
        delay_s = self._failures.next_delay_s(healthy_s=0.0)
        reading, self._reading = self._reading, None
        self._due_s = self._clock() + delay_s
        self.balance.num_failures += 1
        _LOG.warning(
            "a rebalance of experts was given up; everything goes on as it was",
            layer=None if reading is None else reading.layer,
            cause=cause,
            retry_in_s=delay_s,
        )
