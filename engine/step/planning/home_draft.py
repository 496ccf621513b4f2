"""One home's part of a step, in the making: it has blocks, seats and time of its own.

A home (cluster/block_homes.py) is what a whole replica is where heads are shared. Of several, each
plans its decodes by itself; the slowest is the step's length, so that all keep to one limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.step.planning.chunk_budget import ChunkBudget
from engine.step.planning.plan import Budget, RunningView, SequenceKey, WaitingView


class HomeDraft:
    """What is decided there, and what is left of its budget."""

    def __init__(self, running: Sequence[RunningView], budget: Budget) -> None:
        """`running`: the home's own, oldest first."""
        self._running = running
        self._budget = budget
        self._blocks_left = budget.num_available
        self._seats = budget.seats_taken
        self._room: ChunkBudget | None = None
        self.preempted: dict[SequenceKey, None] = {}
        self.decodes: list[SequenceKey] = []

    @property
    def under_way(self) -> list[RunningView]:
        """Prompts that are partly computed, and go on."""
        return [v for v in self._running if not v.is_decode and v.key not in self.preempted]

    @property
    def room(self) -> ChunkBudget:
        """What is left for prompts, once `open_to_prompts` was called."""
        assert self._room is not None, "prompts are planned after all decodes"
        return self._room

    def plan_decodes(self) -> None:
        """Every decode that has, or can get, room for its token."""
        limit = min(self._budget.max_num_seqs, self._budget.max_batch_tokens)
        for view in self._running:
            if len(self.decodes) == limit:
                return
            if view.is_decode and view.key not in self.preempted and self._find_room(view):
                self._blocks_left -= view.blocks_wanted
                self.decodes.append(view.key)

    def open_to_prompts(self, most_decodes: int) -> None:
        """`most_decodes`: of any home in this step."""
        self._room = ChunkBudget(
            self._budget, num_decodes=len(self.decodes), most_decodes=most_decodes
        )

    def goes_on(self, view: RunningView) -> bool:
        """True when a prompt under way gets a chunk in this step, and has its block."""
        has_part = view.blocks_wanted <= self._blocks_left and self.room.tokens_for(view) > 0
        self._blocks_left -= view.blocks_wanted if has_part else 0
        return has_part

    def fits(self, view: WaitingView) -> bool:
        """True when a sequence would find its blocks, its seats and its first tokens here."""
        has_tokens = view.is_remote or self.room.tokens_for(view) > 0
        has_seats = self._seats == 0 or self._seats + view.seats <= self._budget.max_num_seqs
        # each sequence that is already in keeps a block to grow
        return has_tokens and has_seats and view.blocks_wanted + self._seats <= self._blocks_left

    def room_after(self, view: WaitingView) -> tuple[int, int]:
        """The more, the better a home: blocks left, cached ones counted as had; then few seats."""
        return self._blocks_left - view.blocks_fresh, -self._seats

    def admit(self, view: WaitingView) -> None:
        """It has its blocks and seats from now on."""
        self._seats += view.seats
        self._blocks_left -= view.blocks_wanted

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
