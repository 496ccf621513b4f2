"""Policy of one step, as a pure function: decodes first, then prompts in the order they are due.

decodes     oldest first; the youngest sequences give their blocks back when none is left
prompts     those under way and those that wait, in one order; who waits is admitted with blocks for
            all its tokens; none in a step that preempts, and none that would leave running
            sequences without a block to grow
chunks      as long as the token budget allows, and shorter where somebody waits for the step:
            see engine/step/planning/chunk_budget.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain

from engine.step.planning.chunk_budget import ChunkBudget
from engine.step.planning.plan import (
    Budget,
    Chunk,
    ChunkLimit,
    RunningView,
    SequenceKey,
    StepPlan,
    WaitingView,
)


def schedule(
    running: Sequence[RunningView], waiting: Iterable[WaitingView], budget: Budget
) -> StepPlan:
    """The plan of the next step. `running` is ordered, oldest first; `waiting` as it is due.

    `waiting` is consumed only as far as admission goes.
    """
    draft = _Draft(running, budget)
    draft.plan_decodes()
    draft.plan_prompts(() if draft.preempted else waiting)
    return draft.finish()


class _Draft:
    """A plan in the making, and what is left of the budget."""

    def __init__(self, running: Sequence[RunningView], budget: Budget) -> None:
        self._running = running
        self._budget = budget
        self._blocks_left = budget.num_available
        self._seats = budget.seats_taken
        self.preempted: dict[SequenceKey, None] = {}
        self._admitted: list[SequenceKey] = []
        self._decodes: list[SequenceKey] = []
        self._chunks: list[Chunk] = []
        self._limit = ChunkLimit.PROMPTS
        self._is_queue_open = True

    def plan_decodes(self) -> None:
        """Every decode that has, or can get, room for its token."""
        limit = min(self._budget.max_num_seqs, self._budget.max_batch_tokens)
        for view in self._running:
            if len(self._decodes) == limit:
                return
            if view.is_decode and view.key not in self.preempted and self._find_room(view):
                self._blocks_left -= view.blocks_wanted
                self._decodes.append(view.key)

    def plan_prompts(self, waiting: Iterable[WaitingView]) -> None:
        """Chunks of prompts under way, and admissions until somebody does not fit."""
        under_way = [v for v in self._running if not v.is_decode and v.key not in self.preempted]
        queue = iter(waiting)
        first = next(queue, None)
        if first is None and not under_way:
            return
        room = ChunkBudget(self._budget, num_decodes=len(self._decodes))
        queued = self._while_open(chain(() if first is None else (first,), queue))
        prompts: Iterator[RunningView | WaitingView]
        prompts = merge(sorted(under_way, key=_due), queued, key=_due)
        for view in prompts:
            if isinstance(view, WaitingView):
                self._admit(view, room)
            elif view.blocks_wanted <= self._blocks_left and room.tokens_for(view):
                self._blocks_left -= view.blocks_wanted
                self._chunks.append(room.take(view))
        self._limit = room.limit

    def finish(self) -> StepPlan:
        """The plan, frozen."""
        return StepPlan(
            preempted=tuple(self.preempted),
            admitted=tuple(self._admitted),
            decodes=tuple(self._decodes),
            chunks=tuple(self._chunks),
            limit=self._limit,
        )

    def _while_open(self, queue: Iterator[WaitingView]) -> Iterator[WaitingView]:
        while self._is_queue_open and (view := next(queue, None)) is not None:
            yield view

    def _fits(self, view: WaitingView) -> bool:
        has_seats = self._seats == 0 or self._seats + view.seats <= self._budget.max_num_seqs
        # each sequence that is already in keeps a block to grow
        return has_seats and view.blocks_wanted + self._seats <= self._blocks_left

    def _admit(self, view: WaitingView, room: ChunkBudget) -> None:
        """Nobody after it is admitted when it has to wait for blocks, seats or its first chunk."""
        if room.lacks_rows(view):
            return  # those behind it that are not scored go on
        has_tokens = view.is_remote or room.tokens_for(view) > 0
        self._is_queue_open = has_tokens and self._fits(view)
        if self._is_queue_open:
            self._seats += view.seats
            self._blocks_left -= view.blocks_wanted
            self._admitted.append(view.key)
            if not view.is_remote:
                self._chunks.append(room.take(view))

    def _find_room(self, view: RunningView) -> bool:
        """Preempts the youngest until `view` can grow; False: it must wait, or was preempted."""
        while self._blocks_left < view.blocks_wanted:
            victim = self._youngest()
            if victim is None or (victim is view and self._is_alone(view)):
                return False
            self.preempted[victim.key] = None
            self._blocks_left += victim.blocks_freed
            if victim is view:
                return False
        return True

    def _youngest(self) -> RunningView | None:
        """The youngest sequence that may lose its blocks and was not planned already."""
        for view in reversed(self._running):
            if view.is_preemptible and view.key not in self.preempted:
                return view
        return None

    def _is_alone(self, view: RunningView) -> bool:
        return all(other is view or other.key in self.preempted for other in self._running)


def _due(view: RunningView | WaitingView) -> tuple[float, SequenceKey]:
    return view.due_ms, view.key
