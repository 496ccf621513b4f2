"""One model replica: commands in, one step at a time, one frame out. Masks have own threads.

    apply(command)...      any number, between steps
    step() -> Frame        tidy, schedule, place, guess, forward, sample, publish

A runner that can launch decode steps without waiting is kept ahead (run_ahead.py): then the
tokens of a launched step come with the next call of `step`.

A request that fails ends alone, also one that spoils a whole step: the others are computed again,
each by itself. An engine that gives no tokens any more raises EngineBroken (step_health.py).
"""

from __future__ import annotations

import time

from cluster.deadline import Clock, deadline_passed
from cluster.engine_options import EngineOptions
from engine.contract.adapters import LoadAdapter, UnloadAdapter
from engine.contract.commands import Command, Inspect, Submit
from engine.contract.messages import Frame
from engine.runner.model_runner import LaunchingRunner, Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.meter import GrammarMeter
from engine.step import split_prompt
from engine.step.adapting import Adapting
from engine.step.batch.builder import BatchBuilder
from engine.step.command_handler import CommandHandler, RequestCommand
from engine.step.computation import Computation
from engine.step.draft_meter import DraftMeter
from engine.step.drafting.draft import MakeGuesser
from engine.step.inspection import Inspector
from engine.step.launches import Launches
from engine.step.mask_cores import masking_of
from engine.step.mask_waits import look_at_compiling
from engine.step.meters.draft_price import DraftPrice
from engine.step.meters.load_meter import LoadMeter
from engine.step.placement import Placement
from engine.step.planning.plan import HomeShare, StepPlan
from engine.step.prompt_pooling import PromptPooling
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.table import HasReads, RequestTable, no_reads
from engine.step.run_ahead import LaunchedStep, RunAhead
from engine.step.speculation import Speculation, speculation_of
from engine.step.step_planner import StepPlanner
from engine.step.telling.frame_writer import FrameWriter
from engine.step.telling.load_report import LoadReport
from engine.step.telling.queue_report import QueueReport
from engine.step.token_choice import TokenChoice
from engine.step.verification import Verification

_WORKING = (SequenceState.QUEUED, SequenceState.PREFILLING, SequenceState.DECODING)


class Engine:
    """The conductor. Every call from one thread."""

    has_work_soon = False
    """Grammars, masks of them, or adapters were not ready when the last step began: one soon may
    achieve something."""
    _is_stalled = True
    """Until a command comes, or what is waited for."""

    def __init__(
        self,
        replica: Replica,
        options: EngineOptions,
        *,
        clock: Clock = time.monotonic,
        has_reads: HasReads = no_reads,
        core_clock: Clock | None = None,
        grammars: GrammarCompiler | None = None,
        make_guesser: MakeGuesser | None = None,
    ) -> None:
        """`core_clock`: seconds on cores of one's own, see `LoadMeter`; None: nobody knows.
        `grammars`: None: requests with one are refused. `make_guesser`: None: as options say.

        Raises ConfigError for drafts that were asked for by name and cannot be.
        """
        self._clock = clock
        self.placement = Placement(
            replica.homes,
            block_size=options.block_size_tokens,
            prefix_cache=options.prefix_cache,
        )
        batch_device = replica.batch_device or replica.kv.device
        self._batches = BatchBuilder(options.block_size_tokens, batch_device)
        self.table = RequestTable(clock, has_reads)
        self._writer = FrameWriter(self.table)
        made = speculation_of(replica, options, make_guesser, clock=clock)
        self._speculation, self.why_no_drafts = made
        """In words; None: sequences are drafted for."""
        has_drafts = self._speculation is not None
        self._meter = LoadMeter(core_clock, DraftPrice() if has_drafts else None)
        self._grammars = grammars
        bank = replica.adapters
        self.adapters = None if bank is None else Adapting(bank, clock=clock)
        masked = self.table, replica, grammars
        self.masking = masking_of(*masked, clock=clock, looks_for_forced=has_drafts)
        self._planner = self._planner_of(options, self._speculation)
        self._token_choice = TokenChoice(
            replica, self.table, self._writer, masking=self.masking, clock=clock
        )
        self._commands = self._commands_of(replica)
        self._verification = Verification(self.placement, self.table, self._token_choice)
        self._draft_meter = self._draft_meter_of(self._speculation)
        self._computation = self._computation_of(replica)
        self._launches = self._launches_of(replica)
        self.load = self._load_of(GrammarMeter() if grammars is None else grammars.meter)
        self._inspector = Inspector(self.placement, self.table, self.masking, self.adapters)
        self._queue = QueueReport(self.table, self._planner.in_turn, clock=clock)

    @property
    def has_work(self) -> bool:
        """True when a step at once may achieve something."""
        return not self._is_stalled

    @property
    def is_idle(self) -> bool:
        """True when no request is alive and nothing waits to be said."""
        return len(self.table) == 0 and self._writer.frame.is_empty and not self._is_ahead

    def ask_of_reads(self, has_reads: HasReads) -> None:
        """From now on; for an extension, which is made after its engine."""
        self.table.ask_of_reads(has_reads)

    def apply(self, command: Command) -> None:
        """Takes one command; never raises. Commands for an extension are ignored."""
        self._is_stalled = False
        if isinstance(command, Submit):
            self._commands.submit(command.request)
        elif isinstance(command, Inspect):
            self._writer.frame.inspections.append(self._inspector.answer(command))
        elif isinstance(command, RequestCommand):
            self._commands.apply(command)
        elif isinstance(command, LoadAdapter | UnloadAdapter) and self.adapters is not None:
            self.adapters.apply(command)

    def step(self) -> Frame:
        """One step. Never raises for what a request did. Raises EngineBroken."""
        self._meter.begin(self._clock())
        if self.adapters is not None:
            self.adapters.turn()
        self.has_work_soon = self._look_for_work_soon()
        self._tidy()
        launches = self._launches
        if launches is not None and (launched := launches.in_flight) is not None:
            self._run_ahead(launches, launched)
        else:
            self._run()
        return self._publish()

    def receiving_blocks(self, request_id: str) -> list[int] | None:
        """The slots that reads for this REMOTE request may be started into; None: no more reads."""
        request = self.table.get(request_id)
        return None if request is None else split_prompt.receiving_blocks(request)

    def fail_all(self, error: Exception) -> None:
        """After an exception out of `step`, which is a bug: nobody is left without an answer.

        Raises EngineBroken when it was one too many.
        """
        self._computation.fail(list(self.table), error)

    def check_invariants(self) -> list[str]:
        """Broken promises of pool, cache and table, in words; empty is good."""
        return self._inspector.check_invariants()

    def _look_for_work_soon(self) -> bool:
        """Once a step. Raises EngineBroken where a grammar is compiled without end."""
        if self.adapters is not None and self.adapters.is_busy:
            return True
        if self._grammars is None or not self.table.num_constrained:
            return False
        return look_at_compiling(self._grammars) or self.masking.is_busy

    @property
    def _is_ahead(self) -> bool:
        return self._launches is not None and self._launches.in_flight is not None

    def _computation_of(self, replica: Replica) -> Computation:
        pooled = None
        if (head := replica.pooled_head) is not None:
            pooled = PromptPooling(
                head, self.table, self.placement, self._writer, clock=self._clock
            )
        return Computation(
            replica.runner,
            self._batches,
            placement=self.placement,
            table=self.table,
            token_choice=self._token_choice,
            masking=self.masking,
            verification=self._verification,
            writer=self._writer,
            pooled=pooled,
            states_reader=None if self._speculation is None else self._speculation.states_reader,
        )

    def _commands_of(self, replica: Replica) -> CommandHandler:
        return CommandHandler(
            replica,
            self.table,
            self._writer,
            placement=self.placement,
            token_choice=self._token_choice,
            grammars=self._grammars,
            adapters=self.adapters,
        )

    def _planner_of(self, options: EngineOptions, speculation: Speculation | None) -> StepPlanner:
        return StepPlanner(
            options,
            self.table,
            self.placement,
            writer=self._writer,
            costs=self._meter.costs,
            masking=self.masking,
            speculation=speculation,
        )

    def _draft_meter_of(self, drafts: Speculation | None) -> DraftMeter | None:
        told = self._verification, self._meter, self._clock
        return None if drafts is None else DraftMeter(drafts, *told)

    def _load_of(self, grammars: GrammarMeter) -> LoadReport:
        seen = self.placement.pool, self.table, self._meter
        return LoadReport(*seen, grammars=grammars, clock=self._clock)

    def _launches_of(self, replica: Replica) -> Launches | None:
        """None: its steps follow each other. So they do where a head reads what each leaves."""
        if self._computation.states_reader or not isinstance(replica.runner, LaunchingRunner):
            return None
        ahead = RunAhead(
            replica.runner,
            planner=self._planner,
            batches=self._batches,
            placement=self.placement,
            table=self.table,
            token_choice=self._token_choice,
        )
        return Launches(ahead, self._planner, self._computation, self.table)

    def _tidy(self) -> None:
        """Ends requests past their deadline; takes back blocks whose last read is done."""
        for request in self.table:
            if request.deadline.has_passed:
                error = deadline_passed(request.body.asked_s)
                self._writer.end(request, SequenceState.EXPIRED, error)
            elif request.waits_on_others and (failure := request.error) is not None:
                self._writer.fail(request, failure)
            elif request.goes_local:
                self._commands.turn_local_if_free(request)
        self.table.sweep()

    def _run(self) -> None:
        """One step from plan to tokens; or to a launch: its tokens come with the next call."""
        plan = self._planner.plan()
        work = self._planner.carry_out(plan)
        if self._speculation is not None and not plan.chunks:
            work = self._speculation.guess(work, self.placement)
        is_launched = self._launches is not None and self._launches.launch(work)
        slowest = work.slowest_share() if self.placement.homes.are_several else plan.share
        if work.spans and not is_launched:
            self._computation.compute(work)
        if self.table.num_constrained:
            self.masking.look_ahead()
        self._is_stalled = plan.is_empty
        self._measure(plan, slowest)

    def _run_ahead(self, launches: Launches, launched: LaunchedStep) -> None:
        """Launches the step after the one in flight, if it can be; then reads the one in flight."""
        launches.turn(launched)
        self._is_stalled = False
        # what the device does between calls is no gap
        self._meter.end(self._clock(), has_work=False, chunks=(), num_decodes=len(launched.row_of))

    def _measure(self, plan: StepPlan, slowest: HomeShare) -> None:
        is_ahead = self._is_ahead  # its decodes are counted when it lands
        work_left = not plan.is_empty and any(self.table.counts[state] for state in _WORKING)
        self._meter.num_preemptions += len(plan.preempted)
        if self._draft_meter and self._draft_meter.end_drafted(plan, has_work=work_left):
            return
        self._meter.end(
            self._clock(),
            has_work=work_left and not is_ahead,
            chunks=plan.chunks,
            num_decodes=0 if is_ahead else len(plan.decodes),
            slowest=None if is_ahead else slowest,
        )

    def _publish(self) -> Frame:
        self._writer.frame.cache = self.placement.cache.take_change()
        self._writer.frame.load = self.load.due(at_once=bool(self._writer.frame.ended))
        if self._writer.frame.load is not None:
            self._writer.frame.draft_numbers = self._verification.counts.take()
        self._writer.frame.places = self._queue.due()
        if self.adapters is not None:
            self._writer.frame.adapters = self.adapters.take_news()
        return self._writer.take()
