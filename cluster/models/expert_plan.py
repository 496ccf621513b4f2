"""From measured loads to a better placement of one layer's experts. Pure: integers in, a table out.

A step is as slow as its busiest group. Experts change places in pairs, one of the busiest group
for a lighter one of another, or move to a group that has one fewer, as long as that makes the
busier of the two groups less busy; with the lightest group first, the best exchange first. So few
experts move. All ranks that plan with the same numbers plan the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cluster.models.expert_placement import ExpertPlacement

LEAST_GAIN: Final = 0.05
"""Part of the imbalance's excess over 1 that a plan has to take away to be worth the reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """A change of one layer."""

    placement: ExpertPlacement
    num_moves: int
    """Experts that change their group."""
    imbalance_before: float
    imbalance_after: float
    """The busiest group's load over the mean of all: 1.0 is even."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Of an expert of the busiest group with one of another group, or with nothing there."""

    given: int
    group: int
    taken: int | None


def group_loads(loads: Sequence[int], placement: ExpertPlacement) -> list[int]:
    """Of each group the picks of its experts."""
    sums = [0] * placement.num_groups
    for load, group in zip(loads, placement.groups, strict=True):
        sums[group] += load
    return sums


def imbalance(loads: Sequence[int], placement: ExpertPlacement) -> float:
    """The busiest group's load over the mean; 1.0 where nothing has been picked yet."""
    sums = group_loads(loads, placement)
    total = sum(sums)
    return max(sums) * len(sums) / total if total else 1.0


def plan_placement(
    loads: Sequence[int], placement: ExpertPlacement, *, max_moves: int | None = None
) -> PlacementPlan | None:
    """None: no better one was found that is worth it. `loads` are picks of each expert.

    `max_moves` bounds the experts that change their group, and so what is read.
    """
    before, groups = imbalance(loads, placement), list(placement.groups)
    while (exchange := _best_exchange(loads, groups, placement.num_groups)) is not None:
        tried = _after(groups, exchange)
        if max_moves is not None and _num_moved(placement.groups, tried) > max_moves:
            break
        groups = tried
    changed = placement.changed_to(groups)
    after = imbalance(loads, changed)
    if before - after <= LEAST_GAIN * (before - 1.0):
        return None
    return PlacementPlan(
        placement=changed,
        num_moves=placement.num_moves(changed),
        imbalance_before=before,
        imbalance_after=after,
    )


def _best_exchange(
    loads: Sequence[int], groups: Sequence[int], num_groups: int
) -> _Exchange | None:
    """With the lightest group that gives one; None: every other would become as busy."""
    sums, sizes = [0] * num_groups, [0] * num_groups
    for load, group in zip(loads, groups, strict=True):
        sums[group] += load
        sizes[group] += 1
    *others, busiest = sorted(range(num_groups), key=lambda group: sums[group])
    for group in others:
        has_room = sizes[group] < sizes[busiest]
        found = _exchanges(loads, groups, busiest, group, has_room=has_room)
        better = [each for each in found if _busier(each, loads, sums, busiest) < sums[busiest]]
        if better:
            return min(better, key=lambda each: _busier(each, loads, sums, busiest))
    return None


def _exchanges(
    loads: Sequence[int], groups: Sequence[int], busiest: int, group: int, *, has_room: bool
) -> Iterator[_Exchange]:
    """All that take load from the busiest to the other group, and leave as many experts in each,
    or one more in one of them."""
    own = [expert for expert, at in enumerate(groups) if at == busiest]
    theirs = [expert for expert, at in enumerate(groups) if at == group]
    for given in own:
        if has_room and loads[given]:
            yield _Exchange(given, group, None)
        for taken in theirs:
            if loads[taken] < loads[given]:
                yield _Exchange(given, group, taken)


def _busier(exchange: _Exchange, loads: Sequence[int], sums: Sequence[int], busiest: int) -> int:
    """Load of the busier of the two groups afterwards."""
    taken = 0 if exchange.taken is None else loads[exchange.taken]
    moved = loads[exchange.given] - taken
    return max(sums[busiest] - moved, sums[exchange.group] + moved)


def _after(groups: Sequence[int], exchange: _Exchange) -> list[int]:
    changed = list(groups)
    if exchange.taken is not None:
        changed[exchange.taken] = groups[exchange.given]
    changed[exchange.given] = exchange.group
    return changed


def _num_moved(before: Sequence[int], after: Sequence[int]) -> int:
    return sum(ours != theirs for ours, theirs in zip(before, after, strict=True))
