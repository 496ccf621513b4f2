"""Single steps of a group of ranks that share memory, told apart: what each rank computed, and what
the step took beyond that."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cluster.deadline import Deadline
from cluster.rank_facts import RankWait
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import Replica
from engine.runner.ranks.group import RankGroup

_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class GroupStep:
    """One."""

    step_ms: float
    """From the batch to the logits, at the conductor."""
    own_ms: tuple[float, ...]
    """What each rank computed meanwhile: its forward without its collectives."""
    waited_ms: tuple[float, ...]
    """What each rank waited for others, in its collectives."""

    @property
    def imbalance_ms(self) -> float:
        """What the slowest rank computed longer than the fastest."""
        return max(self.own_ms) - min(self.own_ms)

    @property
    def overhead_ms(self) -> float:
        """Beyond what the slowest rank computed."""
        return self.step_ms - max(self.own_ms)

    @property
    def slowest_waited_ms(self) -> float:
        """Of that, what the slowest rank itself waited: in single layers others are slower."""
        return self.waited_ms[self.own_ms.index(max(self.own_ms))]


class GroupSteps:
    """Takes them, one by one."""

    def __init__(self, replica: Replica) -> None:
        """Of a group's conductor; nobody else gives it steps meanwhile."""
        assert isinstance(replica.others, RankGroup)
        self._runner, self._group = replica.runner, replica.others

    def take(self, batch: RaggedBatch) -> GroupStep:
        """Waits until all ranks have told of it."""
        before = self._group.waits_now()
        began = time.perf_counter()
        self._runner.forward(batch)
        step_ms = (time.perf_counter() - began) * 1e3
        after = self._told_since(before)
        pairs = list(zip(before, after, strict=True))
        own_ms = tuple(_own_ms(early, late) for early, late in pairs)
        waited_ms = tuple((late.waited_s - early.waited_s) * 1e3 for early, late in pairs)
        return GroupStep(step_ms, own_ms, waited_ms)

    def _told_since(self, before: list[RankWait]) -> list[RankWait]:
        deadline = Deadline.after(_LIMIT_S)
        while not deadline.has_passed:
            now = self._group.waits_now()
            pairs = zip(before, now, strict=True)
            if all(late.stepped_s > early.stepped_s for early, late in pairs):
                return now
        raise TimeoutError(f"a rank tells nothing of its step for {_LIMIT_S:g} s")


def _own_ms(before: RankWait, now: RankWait) -> float:
    return (now.stepped_s - before.stepped_s - (now.called_s - before.called_s)) * 1e3
