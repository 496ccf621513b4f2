"""Steady decoding without waiting: a step is launched before the tokens of the last one are read.

    host      plan, launch 1 | plan, launch 2 | read 1, publish | plan, launch 3 | read 2, publish
    device                   | step 1                  | step 2                  | step 3

A step with drafts is neither launched so nor run ahead of: its guesses follow from the last tokens.
Where the next step would have some, or a draft model would read for later ones, the one in flight
lands first (StepPlanner.plan_after).

Between two calls of the engine's `step`, at most one launched step is unread: the one in flight.
Its tokens are known to the device only, which feeds them to the next step. A sequence that turns
out to have ended, or is ended from outside, while a step in flight computes it: the token that the
step gives is dropped, and the blocks linger in the table until it has landed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.memory.lease import BlockLease
from engine.runner.model_runner import Flight, LaunchingRunner
from engine.sampling.logits import SamplingRow
from engine.step.batch.builder import BatchBuilder
from engine.step.placement import Placement
from engine.step.planning.plan import SequenceKey, StepPlan
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from engine.step.step_planner import StepPlanner
from engine.step.token_choice import TokenChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Decodes that may be launched."""

    sequences: list[Sequence]
    rows: list[SamplingRow]
    sources: list[int | None]
    """Rows of the step in flight that sample the inputs; None: the input is known."""
    admissions: dict[SequenceKey, int] = field(default_factory=dict)
    """Whose prompts are computed elsewhere, and their homes: blocks are to be reserved there,
    nothing is computed."""

    @property
    def num_ahead(self) -> list[int]:
        """Per sequence: tokens that are not read yet."""
        return [row.num_ahead for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedStep:
    """A step that is unread."""

    flight: Flight
    row_of: dict[Sequence, int]
    """In the order of the rows."""
    leases: frozenset[BlockLease]

    @property
    def alive(self) -> list[Sequence]:
        """Sequences that are not over by now."""
        return [sequence for sequence in self.row_of if not sequence.life.is_over]


class RunAhead:
    """Owns the steps in flight: a second one only from a `launch` to the `land` of the first."""

    def __init__(
        self,
        runner: LaunchingRunner,
        *,
        planner: StepPlanner,
        batches: BatchBuilder,
        placement: Placement,
        table: RequestTable,
        token_choice: TokenChoice,
    ) -> None:
        self._runner = runner
        self._planner = planner
        self._batches = batches
        self._placement = placement
        self._table = table
        self._token_choice = token_choice
        self._unread: list[LaunchedStep] = []

    @property
    def in_flight(self) -> LaunchedStep | None:
        """The oldest step that is unread."""
        return self._unread[0] if self._unread else None

    def step_of(self, sequences: list[Sequence]) -> DecodeStep | None:
        """The next token of each, all decoding; None when some need the host to be sampled, or
        have an adapter, which no captured step has. Changes nothing.
        """
        if any(sequence.adapter is not None for sequence in sequences):
            return None
        row_of = self._unread[-1].row_of if self._unread else {}
        sources = [row_of.get(sequence) for sequence in sequences]
        rows = [self._row(*item) for item in enumerate(zip(sequences, sources, strict=True))]
        if not all(row.is_simple for row in rows):
            return None
        return DecodeStep(sequences=sequences, rows=rows, sources=sources)

    def next_step(self) -> DecodeStep | None:
        """The step after the one in flight; None when that has to land first. Changes no request
        and no block; what a plan changes all the same, step_planner.py says.

        Whatever is more than decodes has to wait: prompts, preemption, blocks to be copied; and
        drafts, which are made of the tokens in flight, or what a draft model reads for later ones.
        """
        plan = self._planner.plan_after(self._unread[-1].row_of)
        if plan.preempted or plan.chunks or plan.draft_lengths or not plan.decodes:
            return None
        if self._planner.is_behind:
            return None
        step = self.step_of(self._decodes(plan))
        if step is None or self._must_copy(step):
            return None
        return replace(step, admissions=plan.admissions)

    def launch(self, step: DecodeStep) -> None:
        """From now on the step is in flight. Its sequences' blocks reach up to its tokens."""
        batch = self._batches.build_ahead(step.sequences, step.num_ahead)
        flight = self._runner.launch(batch, step.rows, step.sources)
        launched = LaunchedStep(
            flight=flight,
            row_of={sequence: row for row, sequence in enumerate(step.sequences)},
            leases=frozenset(sequence.blocks for sequence in step.sequences),
        )
        self._unread.append(launched)
        self._note_leases()

    def make_room(self, step: DecodeStep) -> None:
        """For the tokens of a step that runs ahead: the scheduler has planned the blocks."""
        for sequence, ahead in zip(step.sequences, step.num_ahead, strict=True):
            copied = self._placement.make_room(sequence, ahead)
            assert copied is None, "a step that copies blocks does not run ahead"

    def land(self) -> int:
        """Reads the oldest step; its sequences go on, or end. It is in flight no more, come what
        may. Returns how many got a token."""
        launched = self._unread.pop(0)
        try:
            token_ids = launched.flight.tokens()
        finally:
            self._note_leases()
        for sequence in launched.alive:
            self._placement.record(sequence, sequence.num_computed + 1)
        return self._token_choice.give(list(launched.row_of), token_ids)

    def _row(self, row: int, known: tuple[Sequence, int | None]) -> SamplingRow:
        sequence, source = known
        request = self._table.get(sequence.request_id)
        assert request is not None, "a sequence that decodes has a request"
        return sequence.row(request.params, row, num_unread=int(source is not None))

    def _decodes(self, plan: StepPlan) -> list[Sequence]:
        found = {sequence.key: sequence for _, sequence in self._table.running()}
        return [found[key] for key in plan.decodes]

    def _must_copy(self, step: DecodeStep) -> bool:
        pairs = zip(step.sequences, step.num_ahead, strict=True)
        return any(self._placement.must_copy(sequence, ahead) for sequence, ahead in pairs)

    def _note_leases(self) -> None:
        """The table lets nobody have the blocks that steps in flight write to."""
        leases = (launched.leases for launched in self._unread)
        self._table.computing = frozenset().union(*leases)
