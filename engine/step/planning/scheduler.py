"""Policy of one step, as a pure function: decodes first, then prompts in the order they are due.

decodes     oldest first; the youngest sequences give their blocks back when none is left
prompts     those under way and those that wait, in one order; who waits is admitted with blocks for
            all its tokens; none where the step preempts, and none that would leave running
            sequences without a block to grow
chunks      as long as the token budget allows, and shorter where somebody waits for the step:
            see engine/step/planning/chunk_budget.py
homes       where ranks share blocks (cluster/block_homes.py) each has a budget of its own, an even
            part of the step's: its sequences preempt each other only, and nobody is admitted there
            in that step. Who waits gets, among those that can take it now, the home that has
            half of its prompt cached, or more, unless it is short of room, and else the one with
            the most blocks left; the queue stays one
drafts      beside decodes alone, of what is left of the budget once everybody has what is due: see
            engine/step/planning/draft_lengths.py. Nobody is preempted for a draft, nor waits for
            one
seats       as many as the homes have together. Choices of one prompt share its home, so that they
            may be more than its part, where one sequence alone waits for a seat of the part
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain

from engine.step.planning.chunk_budget import ChunkBudget, num_remaining
from engine.step.planning.draft_lengths import draft_lengths
from engine.step.planning.plan import (
    Budget,
    Chunk,
    ChunkLimit,
    Offers,
    RunningView,
    SequenceKey,
    StepPlan,
    WaitingView,
)

ENOUGH_ROOM = 0.5
"""A home that keeps so much of the blocks that the emptiest keeps is not short of room. Of what the
events of 4 and 8 homes say is cached (sessions that come back to prefixes of 10 blocks, 480 blocks
in all) prompts find 66 and 54 % where blocks alone decide; at 0.75, 0.5 and 0.25 it is 90 and 88,
99 and 94, 99 and 98 %. The more, the more evenly homes are filled."""


def schedule(
    running: Sequence[RunningView], waiting: Iterable[Offers], budgets: Sequence[Budget]
) -> StepPlan:
    """The plan of the next step. `running` is ordered, oldest first; `waiting` as it is due;
    `budgets` has one for each home.

    `waiting` is consumed only as far as admission goes.
    """
    planning = _Planning(running, budgets)
    planning.plan_decodes()
    planning.plan_prompts(waiting if planning.admits else ())
    planning.plan_drafts()
    return planning.finish()


class _Planning:
    """A plan in the making."""

    def __init__(self, running: Sequence[RunningView], budgets: Sequence[Budget]) -> None:
        self._homes = [
            _Home(own, budget)
            for own, budget in zip(_by_home(running, len(budgets)), budgets, strict=True)
        ]
        self._max_seats = sum(budget.max_num_seqs for budget in budgets)
        self._admitted: dict[SequenceKey, int] = {}
        self._chunks: list[Chunk] = []
        self._limit = ChunkLimit.PROMPTS
        self._is_queue_open = True
        self._draft_lengths: dict[SequenceKey, int] = {}

    @property
    def admits(self) -> bool:
        """False when somebody loses its blocks at every home."""
        return not all(home.preempted for home in self._homes)

    def plan_decodes(self) -> None:
        """Of each home."""
        for home in self._homes:
            home.plan_decodes(self._max_seats)

    def plan_prompts(self, waiting: Iterable[Offers]) -> None:
        """Chunks of prompts under way, and admissions until somebody does not fit."""
        under_way = [view for home in self._homes for view in home.under_way]
        queue = iter(waiting)
        first = next(queue, None)
        if first is None and not under_way:
            return
        most_decodes = max(len(home.decodes) for home in self._homes)
        for home in self._homes:
            home.open_to_prompts(most_decodes)
        queued = self._while_open(chain(() if first is None else (first,), queue))
        prompts: Iterator[RunningView | Offers]
        prompts = merge(sorted(under_way, key=_due), queued, key=_due)
        for prompt in prompts:
            if isinstance(prompt, RunningView):
                self._go_on(prompt)
            else:
                self._admit(prompt)
        limits = [home.room.limit for home in self._homes]
        self._limit = next((it for it in limits if it is not ChunkLimit.PROMPTS), limits[0])

    def plan_drafts(self) -> None:
        """Of the decodes of a single home, in a step that neither computes prompts nor preempts."""
        if len(self._homes) == 1 and not self._chunks:
            self._draft_lengths = self._homes[0].draft_lengths()

    def finish(self) -> StepPlan:
        """The plan, frozen; decodes are home by home."""
        return StepPlan(
            preempted=tuple(chain.from_iterable(home.preempted for home in self._homes)),
            admitted=tuple(self._admitted),
            homes=tuple(self._admitted.values()),
            decodes=tuple(chain.from_iterable(home.decodes for home in self._homes)),
            chunks=tuple(self._chunks),
            limit=self._limit,
            draft_lengths=self._draft_lengths,
        )

    def _while_open(self, queue: Iterator[Offers]) -> Iterator[Offers]:
        while self._is_queue_open and (offers := next(queue, None)) is not None:
            yield offers

    def _go_on(self, view: RunningView) -> None:
        home = self._homes[view.home]
        if home.goes_on(view):
            self._take(home.room, view)

    def _admit(self, offers: Offers) -> None:
        """Nobody after it is admitted when it has to wait for blocks, seats or its first chunk."""
        views = [view for view in offers if not self._homes[view.home].room.lacks_rows(view)]
        if not views:
            return  # those behind it that are not scored go on
        fitting = []
        if self._has_seats(views[0].seats):
            fitting = [view for view in views if self._homes[view.home].fits(view)]
        self._is_queue_open = bool(fitting)
        if fitting:
            view = self._best_of(fitting)
            self._homes[view.home].admit(view)
            self._admitted[view.key] = view.home
            if not view.is_remote:
                self._take(self._homes[view.home].room, view)

    def _has_seats(self, seats: int) -> bool:
        """Of all homes together; who needs more than there are comes in alone."""
        taken = sum(home.seats for home in self._homes)
        return taken == 0 or taken + seats <= self._max_seats

    def _best_of(self, fitting: list[WaitingView]) -> WaitingView:
        """The part of a home is kept to where it can be; see `homes` above."""
        if len(fitting) == 1:
            return fitting[0]
        within = [view for view in fitting if self._homes[view.home].has_part_for(view)]
        if not within:
            return min(fitting, key=lambda v: self._homes[v.home].seats)
        room = {view.home: self._homes[view.home].room_after(view) for view in within}
        enough = max(room.values()) * ENOUGH_ROOM

        def goodness(view: WaitingView) -> tuple[int, int, int]:
            counts = room[view.home] >= enough and view.num_cached >= view.num_uncached
            hit_tokens = view.num_cached if counts else 0
            return hit_tokens, room[view.home], -self._homes[view.home].seats

        return max(within, key=goodness)

    def _take(self, room: ChunkBudget, view: RunningView | WaitingView) -> None:
        chunk = room.take(view)
        self._chunks.append(chunk)
        if chunk.num_tokens == num_remaining(view):
            most_rows = max(home.room.num_rows for home in self._homes)
            for home in self._homes:
                home.room.make_way(most_rows)


class _Home:
    """One home's part of a step, in the making: what is decided there, and what is left of its
    budget of blocks, seats and time. It is what a whole replica is where heads are shared."""

    def __init__(self, running: Sequence[RunningView], budget: Budget) -> None:
        """`running`: the home's own, oldest first."""
        self._running = running
        self._budget = budget
        self._blocks_left = budget.num_available
        self.seats = budget.seats_taken
        """Taken so far."""
        self._room: ChunkBudget | None = None
        self.preempted: dict[SequenceKey, None] = {}
        self.decodes: list[SequenceKey] = []

    @property
    def under_way(self) -> list[RunningView]:
        """Prompts that are partly computed, and go on."""
        found = [v for v in self._running if not v.is_decode and v.key not in self.preempted]
        return [v for v in found if not v.sits_out]

    @property
    def room(self) -> ChunkBudget:
        """What is left for prompts, once `open_to_prompts` was called."""
        assert self._room is not None, "prompts are planned after all decodes"
        return self._room

    def plan_decodes(self, max_seats: int) -> None:
        """Every decode that has, or can get, room for its token. `max_seats`: of all homes."""
        limit = min(max_seats, self._budget.max_batch_tokens)
        for view in self._running:
            if len(self.decodes) == limit:
                return
            if not view.is_decode or view.sits_out or view.key in self.preempted:
                continue
            if view.blocks_wanted <= self._blocks_left or self._preempt_for(view):
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
        """True when a sequence would find its blocks and its first tokens here, and a seat of the
        part if it is one; several may go beyond the part."""
        if self.preempted or (view.seats == 1 and not self.has_part_for(view)):
            return False
        has_tokens = view.is_remote or self.room.tokens_for(view) > 0
        # each sequence that is already in keeps a block to grow
        return has_tokens and view.blocks_wanted + self.seats <= self._blocks_left

    def has_part_for(self, view: WaitingView) -> bool:
        """True when its seats are within this home's part."""
        return self.seats + view.seats <= self._budget.max_num_seqs

    def room_after(self, view: WaitingView) -> int:
        """Blocks left, cached ones counted as had."""
        return self._blocks_left - view.blocks_fresh

    def admit(self, view: WaitingView) -> None:
        """It has its blocks and seats from now on."""
        self.seats += view.seats
        self._blocks_left -= view.blocks_wanted

    def draft_lengths(self) -> dict[SequenceKey, int]:
        """Tokens of the drafts of its decodes that are verified."""
        drafted = [view for view in self._running if view.chances]
        if not drafted or self.preempted:
            return {}
        decodes = set(self.decodes)
        return draft_lengths(
            [view for view in drafted if view.key in decodes],
            self._budget.cost,
            num_decodes=len(decodes),
            max_rows=self._budget.max_batch_tokens - len(decodes),
            max_blocks=self._blocks_left,
        )

    def _preempt_for(self, view: RunningView) -> bool:
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


def _by_home(running: Sequence[RunningView], num_homes: int) -> list[Sequence[RunningView]]:
    if num_homes == 1:
        return [running]
    return [[view for view in running if view.home == home] for home in range(num_homes)]


def _due(prompt: RunningView | Offers) -> tuple[float, SequenceKey]:
    view = prompt if isinstance(prompt, RunningView) else prompt[0]
    return view.due_ms, view.key
