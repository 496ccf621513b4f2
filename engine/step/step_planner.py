"""From requests to what the next step computes: the scheduler is asked, and its plan carried out.

plan        as requests are now; plan_after: as a step in flight will leave them
carry_out   preempts, makes room, admits -> what is to be computed, and what is guessed before

No plan changes a request, a token or a block of the answers'. Asking what a draft would be worth
and which masks are there does change what is known of guesses and masks: guessers look texts up,
drafters count a step of their rest, masks that are nearly there are waited for, half a millisecond
at most. A plan that is thrown away has done that too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from operator import itemgetter

from cluster.engine_options import EngineOptions
from cluster.models.footprint import SCORED_ROWS
from engine.step import split_prompt
from engine.step.batch.step_work import Span, StepWork, Wanted
from engine.step.drafters.drafter import NOTHING, DraftProspect
from engine.step.masking import Masking
from engine.step.meters.load_meter import StepCostMeter
from engine.step.placement import Placement
from engine.step.planning.plan import Budget, Offers, RunningView, SequenceKey, StepPlan
from engine.step.planning.scheduler import schedule
from engine.step.planning.step_cost import StepCost
from engine.step.planning.urgency import due_ms
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from engine.step.speculation import Speculation
from engine.step.telling.frame_writer import FrameWriter

_Queued = tuple[float, SequenceKey, Request, Sequence]
"""When it is due, in ms; key; whose it is."""


class StepPlanner:
    """Plans change what is known of guesses and masks alone; carrying them out changes blocks and
    states, computes nothing, and nothing fails then."""

    def __init__(
        self,
        options: EngineOptions,
        table: RequestTable,
        placement: Placement,
        *,
        writer: FrameWriter,
        costs: StepCostMeter,
        masking: Masking,
        speculation: Speculation | None = None,
    ) -> None:
        """`speculation`: guesses what sequences go on with; None: nobody does."""
        self._options = options
        self._table = table
        self._placement = placement
        self._writer = writer
        self._costs = costs
        self._masking = masking
        self._speculation = speculation
        self._num_homes = placement.homes.num_homes
        self._is_masked = False
        """Of answers with a grammar there may be something left."""

    def plan(self) -> StepPlan:
        """The next step, when no other is under way."""
        sits_out, running = _nobody_sits_out, list(self._table.running())
        if self._table.num_constrained:
            self._masking.settle(self._costs.cost.decodes_ms(len(running)) / 1e3)
            sits_out = self._masking.sits_out
            self._is_masked = True
        elif self._is_masked:
            self._is_masked = self._masking.rest()
        budgets = self._budgets(self._table.seats_taken(self._num_homes))
        is_tight, cost = _is_tight(len(running), budgets), budgets[0].cost
        guess = self._begin_guesses(cost)
        views = [
            self._view(
                *(r, s),
                is_tight=is_tight,
                cost=cost,
                prospect=guess(r, s),
                sits_out=sits_out(s) or s in r.kept_candidates,
            )
            for r, s in running
        ]
        return self._schedule(views, budgets)

    def plan_after(self, in_flight: Container[Sequence]) -> StepPlan:
        """The step after one that computes the last known token of each sequence of `in_flight`.

        Those that surely end with their next token have no part in it; of the others it is assumed
        that they go on. Blocks that come free when the step lands are not counted on. Drafts are of
        what would follow if the tokens in flight are as guessed; they are not made.
        """
        running = list(self._table.running())
        ending = {s for r, s in running if s in in_flight and ends_with_next(r, s)}
        staying = [(r, s) for r, s in running if s not in ending]
        seats = self._table.seats_taken(self._num_homes)
        for sequence in ending:
            seats[sequence.blocks.home] -= 1
        budgets = self._budgets(seats)
        is_tight = _is_tight(len(staying), budgets)
        guess = self._begin_guesses(budgets[0].cost)
        views = []
        for r, s in staying:
            ahead, prospect = int(s in in_flight), guess(r, s)
            view = self._placement.running_view(
                *(r, s),
                is_tight=is_tight,
                num_ahead=ahead,
                chances=prospect.chances[ahead:],
                guess_ms=prospect.guess_ms,
                sits_out=s in r.kept_candidates,
            )
            views.append(view)
        return self._schedule(views, budgets)

    @property
    def is_behind(self) -> bool:
        """Whether the step that was planned last would also read for later drafts."""
        return self._speculation is not None and self._speculation.is_behind

    def carry_out(self, plan: StepPlan) -> StepWork:
        """Preempts, makes room, admits; returns what is to be computed, decodes first, and which
        drafts are wanted before."""
        found = {s.key: (r, s) for r in self._table for s in r.sequences}
        for key in plan.preempted:
            self._preempt(*found[key])
        drafts, decodes = plan.draft_lengths, plan.decodes
        if plan.preempted and self._table.num_searches:
            decodes = tuple(key for key in decodes if found[key][1].lease is not None)
        shares = [(found[key][1], 1) for key in decodes if key not in drafts]
        shares += [(found[chunk.key][1], chunk.num_tokens) for chunk in plan.chunks]
        copies = [self._placement.make_room(s) for s, _ in shares if s.lease is not None]
        wanted = [Wanted(*found[key], num_tokens) for key, num_tokens in drafts.items()]
        for one in wanted:
            copies.append(self._placement.make_room(one.sequence))
            self._placement.make_draft_room(one.sequence, one.num_tokens)
        for key, home in plan.admissions.items():
            self._admit(*found[key], home)
        spans = [Span(s, num_tokens) for s, num_tokens in shares if s.lease is not None]
        return StepWork(
            spans=spans,
            num_decodes=len(decodes) - len(wanted),
            copies=[pair for pair in copies if pair is not None],
            wanted=wanted,
        )

    def _preempt(self, request: Request, sequence: Sequence) -> None:
        """All beams of a search go with one of them."""
        if request.search is not None:
            self._table.start_over(request)
        elif sequence.lease is not None:  # else it has gone with another beam
            sequence.release()
            sequence.life.advance(SequenceState.QUEUED)

    def in_turn(
        self, prompts: Iterable[tuple[Request, Sequence]]
    ) -> list[tuple[Request, Sequence]]:
        """As they are computed: who is due first, first."""
        cost = self._costs.cost
        return sorted(prompts, key=lambda prompt: self._due_ms(prompt[0], cost))

    def admit(self, admissions: Mapping[SequenceKey, int]) -> None:
        """Queued sequences that a plan lets in, by their homes, apart from its other work."""
        if admissions:
            for request, sequence in list(self._table.waiting()):
                if sequence.key in admissions:
                    self._admit(request, sequence, admissions[sequence.key])

    def _begin_guesses(self, cost: StepCost) -> Callable[[Request, Sequence], DraftProspect]:
        if self._speculation is None:
            return _guesses_nothing
        self._speculation.begin(cost, self._table.counts[SequenceState.DECODING])
        return self._speculation.prospect

    def _view(
        self,
        request: Request,
        sequence: Sequence,
        *,
        is_tight: bool,
        cost: StepCost,
        prospect: DraftProspect,
        sits_out: bool,
    ) -> RunningView:
        return self._placement.running_view(
            request,
            sequence,
            is_tight=is_tight,
            due_ms=self._due_ms(request, cost),
            chances=prospect.chances,
            guess_ms=prospect.guess_ms,
            sits_out=sits_out,
        )

    def _budgets(self, seats_taken: list[int]) -> list[Budget]:
        """Of each home: an even part of what the step may compute, and what it has of its own."""
        cost, available_at = self._costs.cost, self._placement.pool.available_at
        return [
            Budget(
                max_batch_tokens=self._part_of(self._options.max_batch_tokens),
                max_num_seqs=self._part_of(self._options.max_num_seqs),
                max_scored_rows=self._part_of(SCORED_ROWS),
                num_available=available_at(home),
                seats_taken=seats,
                cost=cost,
                max_step_ms=self._options.max_step_ms,
            )
            for home, seats in enumerate(seats_taken)
        ]

    def _part_of(self, number: int) -> int:
        return number // self._num_homes

    def _schedule(self, views: list[RunningView], budgets: list[Budget]) -> StepPlan:
        cost = budgets[0].cost
        queued = [(self._due_ms(r, cost), s.key, r, s) for r, s in self._table.waiting()]
        queued.sort(key=itemgetter(0, 1))
        return schedule(views, map(self._offers, queued), budgets)

    def _offers(self, queued: _Queued) -> Offers:
        due_ms, _, request, sequence = queued
        return self._placement.offers(request, sequence, due_ms=due_ms)

    def _due_ms(self, request: Request, cost: StepCost) -> float:
        if request.is_kept:
            return math.inf  # nobody waits for it
        if request.is_open:
            return 0.0  # it decodes, or has done so: nobody goes before it
        is_begun = request.is_remote or request.is_resumed  # a reader waits in mid-answer
        return due_ms(
            request.arrived_s * 1e3,
            num_tokens=0 if is_begun else request.num_to_compute,
            deadline_ms=request.deadline.at_s * 1e3,
            cost=cost,
        )

    def _admit(self, request: Request, sequence: Sequence, home: int) -> None:
        if not self._placement.admit(request, sequence, home):
            return  # an admission before it evicted what it had counted on: it stays queued
        if request.is_remote:
            sequence.life.advance(SequenceState.RECEIVING)
            request.num_cached_tokens = sequence.num_computed
            self._writer.frame.reserved.append(split_prompt.reserved(request, self._placement))
        else:
            sequence.life.advance(SequenceState.PREFILLING)
            self._writer.started(request, sequence)


def _nobody_sits_out(sequence: Sequence) -> bool:
    return False


def _guesses_nothing(request: Request, sequence: Sequence) -> DraftProspect:
    return NOTHING


def _is_tight(num_running: int, budgets: list[Budget]) -> bool:
    """True when some home may lack a block for each of its sequences, were all of them there."""
    return num_running > min(budget.num_available for budget in budgets)


def ends_with_next(request: Request, sequence: Sequence) -> bool:
    """True when the sequence's next token is its last, whatever it is."""
    return sequence.num_generated + 1 >= request.params.max_tokens
