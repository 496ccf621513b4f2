"""How many tokens of each draft a step verifies: as many as make it give more tokens in a
millisecond. Pure policy, from chances and measured costs.

    a step of decodes    gives one token for each sequence, in decodes_ms
    having drafts        takes draft_base_ms, whatever their rows
    a row of a draft     adds its chance of being kept, and what it takes
                         -> rows are taken, the best first, while they raise tokens per millisecond

Where that is not clearly more than without drafts, there are none: the plain step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.step.planning.plan import RunningView, SequenceKey
from engine.step.planning.step_cost import StepCost

LEAST_GAIN = 1.05
"""In tokens per millisecond, as expected: less is not worth the risk of having expected wrongly,
nor what a step with drafts takes beside its rows. That is 0.15 ms with one stream of SmolLM2, 0.4
with sixteen, of steps of 2.5 and 8 ms (two quiet cores)."""
ROW_GAIN = 1.14
"""The same of each row, over what the step has so far: those whose chance was taken for too high
are the ones that are taken. At 1.08 chats of 16 streams verified 1.5 rows a step and kept 54 % of
them, at 1.14, when rows were priced without what a step with drafts takes whatever their number,
0.6 rows and 67 % (`python -m benchmarks.bench_speculation`)."""

_Row = tuple[float, float, float, RunningView]
"""Chance per millisecond, chance, milliseconds, whose it is."""


def draft_lengths(
    views: Iterable[RunningView],
    cost: StepCost,
    *,
    num_decodes: int,
    max_rows: int,
    max_blocks: int,
) -> dict[SequenceKey, int]:
    """Tokens to verify of those that have any, beside a step of `num_decodes`.

    `max_rows` and `max_blocks`: what is left of the step's budget. Nobody gives way for a draft.
    """
    plain_ms = cost.decodes_ms(num_decodes)
    if plain_ms <= 0.0 or cost.draft_row_ms <= 0.0:
        return {}  # nothing was measured yet
    room = _Room(max_rows, max_blocks)
    tokens, took_ms = float(num_decodes), plain_ms + cost.draft_base_ms
    lengths: dict[SequenceKey, int] = {}
    for rate, chance, row_ms, view in sorted(_rows(views, cost), key=_rate, reverse=True):
        if rate * took_ms <= ROW_GAIN * tokens:
            break
        length = lengths.get(view.key, 0)
        if room.takes(view, length):
            lengths[view.key] = length + 1
            tokens, took_ms = tokens + chance, took_ms + row_ms
    is_better = tokens * plain_ms > LEAST_GAIN * num_decodes * took_ms
    return lengths if is_better else {}


def least_chance(cost: StepCost, num_decodes: int) -> float:
    """Of a row that may be worth verifying beside `num_decodes`, at best; above 1: none is."""
    took_ms = cost.decodes_ms(num_decodes)
    if not took_ms:
        return 1.0
    return ROW_GAIN * cost.draft_ms(0) * num_decodes / (took_ms + cost.draft_base_ms)


def speedup(
    chances: Iterable[float],
    cost: StepCost,
    *,
    num_decodes: int,
    context: int,
    guess_ms: float = 0.0,
) -> float:
    """Tokens per millisecond of steps whose sequences all have drafts of these chances, at the best
    length, over those of plain steps; 1.0 where drafts are not better, or nothing was measured."""
    plain_ms = cost.decodes_ms(num_decodes)
    if plain_ms <= 0.0 or cost.draft_row_ms <= 0.0:
        return 1.0
    rows_ms = num_decodes * (cost.draft_ms(context) + guess_ms)
    best, tokens, took_ms = 1.0, 1.0, plain_ms
    for chance in chances:
        tokens, took_ms = tokens + chance, took_ms + rows_ms
        best = max(best, tokens * plain_ms / took_ms)
    return best


class _Room:
    """What is left for drafts."""

    def __init__(self, max_rows: int, max_blocks: int) -> None:
        self._rows, self._blocks = max_rows, max_blocks
        self._full: set[SequenceKey] = set()

    def takes(self, view: RunningView, length: int) -> bool:
        """One more row of a draft of `length`, if it fits; none after one that does not."""
        if self._rows == 0 or view.key in self._full:
            return False
        wants_block = view.blocks_for_draft(length + 1) > view.blocks_for_draft(length)
        if wants_block and self._blocks == 0:
            self._full.add(view.key)
            return False
        self._rows -= 1
        self._blocks -= wants_block
        return True


def _rows(views: Iterable[RunningView], cost: StepCost) -> Iterator[_Row]:
    for view in views:
        row_ms = cost.draft_ms(view.num_computed) + view.guess_ms
        for chance in view.chances:
            yield chance / row_ms, chance, row_ms, view


def _rate(row: _Row) -> float:
    return row[0]
