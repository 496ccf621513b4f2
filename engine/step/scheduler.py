"""Policy of one step, as a pure function: decodes first, then prompts in order of arrival.

decodes     oldest first; the youngest sequences give their blocks back when none is left
chunks      of prompts under way, with what is left of the token budget
admissions  first come, first served, each with blocks for all its tokens; none in a step that
            preempts, and none that would leave running sequences without a block to grow
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.step.plan import Budget, Chunk, RunningView, SequenceKey, StepPlan, WaitingView


def schedule(
    running: Sequence[RunningView], waiting: Iterable[WaitingView], budget: Budget
) -> StepPlan:
    """The plan of the next step. `running` and `waiting` are ordered, oldest first.

    `waiting` is consumed only as far as admission goes.
    """
    draft = _Draft(running, budget)
    draft.plan_decodes()
    draft.plan_chunks()
    if not draft.preempted:
        draft.plan_admissions(waiting)
    return draft.finish()


class _Draft:
    """A plan in the making, and what is left of the budget."""

    def __init__(self, running: Sequence[RunningView], budget: Budget) -> None:
        self._running = running
        self._budget = budget
        self._tokens_left = budget.max_batch_tokens
        self._blocks_left = budget.num_available
        self.preempted: dict[SequenceKey, None] = {}
        self._admitted: list[SequenceKey] = []
        self._decodes: list[SequenceKey] = []
        self._chunks: list[Chunk] = []

    def plan_decodes(self) -> None:
        """Every decode that has, or can get, room for its token."""
        limit = min(self._budget.max_num_seqs, self._budget.max_batch_tokens)
        for view in self._running:
            if len(self._decodes) == limit:
                return
            if view.is_decode and view.key not in self.preempted and self._find_room(view):
                self._blocks_left -= view.blocks_wanted
                self._tokens_left -= 1
                self._decodes.append(view.key)

    def plan_chunks(self) -> None:
        """Prompts under way, oldest first, as far as the tokens go."""
        for view in self._running:
            num_tokens = min(view.num_remaining, self._tokens_left)
            if view.is_decode or view.key in self.preempted or num_tokens == 0:
                continue
            if view.blocks_wanted <= self._blocks_left:
                self._blocks_left -= view.blocks_wanted
                self._add_chunk(view.key, num_tokens)

    def plan_admissions(self, waiting: Iterable[WaitingView]) -> None:
        """From the head of the queue until something does not fit."""
        seats = self._budget.seats_taken
        for view in waiting:
            num_tokens = 0 if view.is_remote else min(view.num_uncached, self._tokens_left)
            has_seats = seats == 0 or seats + view.seats <= self._budget.max_num_seqs
            # each sequence that is already in keeps a block to grow
            has_blocks = view.blocks_wanted + seats <= self._blocks_left
            if not (has_seats and has_blocks and (num_tokens or view.is_remote)):
                return
            seats += view.seats
            self._blocks_left -= view.blocks_wanted
            self._admitted.append(view.key)
            if num_tokens:
                self._add_chunk(view.key, num_tokens)

    def finish(self) -> StepPlan:
        """The plan, frozen."""
        return StepPlan(
            preempted=tuple(self.preempted),
            admitted=tuple(self._admitted),
            decodes=tuple(self._decodes),
            chunks=tuple(self._chunks),
        )

    def _add_chunk(self, key: SequenceKey, num_tokens: int) -> None:
        self._tokens_left -= num_tokens
        self._chunks.append(Chunk(key, num_tokens))

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
