"""One model replica: commands in, one step at a time, one frame out. No network, no threads.

    apply(command)...      any number, between steps
    step() -> Frame        tidy, schedule, place, forward, sample, publish

A request that fails ends alone. A forward that fails ends the requests of that step; the engine
lives on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
import torch

from cluster.config import EngineOptions
from cluster.errors import DeadlineExceeded, InternalError
from engine import handoff
from engine.batch_builder import BatchBuilder, Span
from engine.generation import Generation
from engine.lifecycle import Clock, SequenceState
from engine.load_meter import LoadMeter
from engine.load_report import LoadReport
from engine.messages import Command, Frame, Inspect, Inspection, Submit
from engine.model_runner import Replica
from engine.outbox import Outbox
from engine.placement import Placement
from engine.reception import Reception, RequestCommand
from engine.request import Request
from engine.request_table import Holds, RequestTable
from engine.scheduler import schedule
from engine.sequence import Sequence
from engine.step_plan import Budget, StepPlan

_LOG = structlog.get_logger()
_WORKING = (SequenceState.QUEUED, SequenceState.PREFILLING, SequenceState.DECODING)


def no_reads(request_id: str) -> bool:
    """A Holds for an engine that receives nothing."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a step computes: the spans, decodes first, and the blocks to copy before."""

    spans: list[Span]
    num_decodes: int
    copies: list[tuple[int, int]]


class Engine:
    """The conductor. Every call from one thread."""

    def __init__(
        self,
        replica: Replica,
        options: EngineOptions,
        *,
        clock: Clock = time.monotonic,
        holds: Holds = no_reads,
    ) -> None:
        self._replica = replica
        self._options = options
        self._clock = clock
        self.placement = Placement(
            num_blocks=replica.kv.shape[0],
            block_size=options.block_size_tokens,
            prefix_cache=options.prefix_cache,
        )
        batch_device = replica.batch_device or replica.kv.device
        self._batches = BatchBuilder(options.block_size_tokens, batch_device)
        self.table = RequestTable(clock, holds)
        self._outbox = Outbox(self.table)
        self._generation = Generation(replica, self.table, self._outbox, clock=clock)
        self._reception = Reception(
            replica,
            self.table,
            self._outbox,
            placement=self.placement,
            generation=self._generation,
        )
        self._meter = LoadMeter()
        self.load = LoadReport(self.placement.pool, self.table, self._meter, clock=clock)
        self._is_stalled = True

    @property
    def has_work(self) -> bool:
        """True when a step at once may achieve something."""
        return not self._is_stalled

    @property
    def is_idle(self) -> bool:
        """True when no request is alive and nothing waits to be said."""
        return len(self.table) == 0 and self._outbox.frame.is_empty

    def apply(self, command: Command) -> None:
        """Takes one command; never raises. Commands for an extension are ignored."""
        self._is_stalled = False
        if isinstance(command, Submit):
            self._reception.submit(command.request)
        elif isinstance(command, Inspect):
            self._outbox.frame.inspections.append(self._inspect(command))
        elif isinstance(command, RequestCommand):
            self._reception.steer(command)

    def step(self) -> Frame:
        """One step. Never raises for what a request did."""
        self._meter.begin(self._clock())
        self._tidy()
        plan = self._plan()
        work = self._carry_out(plan)
        if work.spans:
            self._compute(work)
        self._is_stalled = plan.is_empty
        self._measure(plan)
        return self._publish()

    def receiving_blocks(self, request_id: str) -> list[int] | None:
        """The slots that reads for this REMOTE request may be started into; None: no more reads."""
        request = self.table.get(request_id)
        if request is None or request.goes_local:
            return None
        if request.leader.life.state is not SequenceState.RECEIVING:
            return None
        return list(request.leader.blocks.block_ids)

    def fail_all(self) -> None:
        """After an exception out of `step`, which is a bug: nobody is left without an answer."""
        self._fail(self.table)

    def check_invariants(self) -> list[str]:
        """Broken promises of pool, cache and table, in words; empty is good."""
        found = self.placement.pool.check_invariants() + self.table.check_invariants()
        if self.table.leases() != self.placement.pool.leases:
            found.append("the pool's leases are not those that requests answer for")
        return found

    def _inspect(self, command: Inspect) -> Inspection:
        return Inspection(
            token=command.token,
            violations=self.check_invariants() if command.check_invariants else [],
            snapshot=self.placement.cache.snapshot() if command.snapshot_cache else [],
        )

    def _tidy(self) -> None:
        """Ends requests past their deadline; takes back blocks whose last read is done."""
        now_s = self._clock()
        for request in self.table:
            if now_s >= request.deadline_s:
                timeout_ms = request.body.timeout_ms
                error = DeadlineExceeded(f"the request did not end within {timeout_ms:.0f} ms")
                self._outbox.end(request, SequenceState.EXPIRED, error)
            elif request.goes_local:
                self._reception.turn_local_if_free(request)
        self.table.sweep()

    def _plan(self) -> StepPlan:
        budget = Budget(
            max_batch_tokens=self._options.max_batch_tokens,
            max_num_seqs=self._options.max_num_seqs,
            num_available=self.placement.pool.num_available,
            seats_taken=self.table.seats_taken(),
        )
        running = list(self.table.running())
        is_tight = len(running) > budget.num_available
        views = [self.placement.running_view(r, s, is_tight=is_tight) for r, s in running]
        waiting = (self.placement.waiting_view(r, s) for r, s in self.table.waiting())
        return schedule(views, waiting, budget)

    def _carry_out(self, plan: StepPlan) -> StepWork:
        """Preempts, makes room, admits; returns what is to be computed, decodes first."""
        found = {s.key: (r, s) for r in self.table for s in r.sequences}
        for key in plan.preempted:
            _, sequence = found[key]
            sequence.release()
            sequence.life.advance(SequenceState.QUEUED)
        shares = [(found[key][1], 1) for key in plan.decodes]
        shares += [(found[chunk.key][1], chunk.num_tokens) for chunk in plan.chunks]
        copies = [self.placement.make_room(s) for s, _ in shares if s.lease is not None]
        for key in plan.admitted:
            self._admit(*found[key])
        return StepWork(
            spans=[Span(s, num_tokens) for s, num_tokens in shares if s.lease is not None],
            num_decodes=len(plan.decodes),
            copies=[pair for pair in copies if pair is not None],
        )

    def _admit(self, request: Request, sequence: Sequence) -> None:
        if not self.placement.admit(request, sequence):
            return  # an admission before it evicted what it had counted on: it stays queued
        if request.is_remote:
            sequence.life.advance(SequenceState.RECEIVING)
            request.num_cached_tokens = sequence.num_computed
            self._outbox.frame.reserved.append(handoff.reserved(request, self.placement))
        else:
            sequence.life.advance(SequenceState.PREFILLING)
            self._outbox.started(request, sequence)

    def _compute(self, work: StepWork) -> None:
        """Forward, then tokens. An exception ends the requests of this step only."""
        try:
            logits = self._forward(work)
            completed = [span.sequence for span in work.spans if span.completes]
            for span in work.spans:
                self.placement.record(span.sequence, span.end)
            self._generation.advance(logits, completed)
            self._announce(work)
        except Exception:
            _LOG.exception("step failed", num_sequences=len(work.spans))
            self._fail(self._requests_of(work))

    def _forward(self, work: StepWork) -> torch.Tensor:
        self._replica.runner.copy_blocks(work.copies)
        batch = self._batches.build(work.spans, work.num_decodes)
        return self._replica.runner.forward(batch)

    def _announce(self, work: StepWork) -> None:
        for request in self._requests_of(work):
            if request.is_export:
                prefilled = handoff.announce(request, self.placement)
                self._outbox.frame.prefilled += [prefilled] if prefilled else []

    def _requests_of(self, work: StepWork) -> list[Request]:
        """The requests of this step that are not over."""
        ids = dict.fromkeys(span.sequence.request_id for span in work.spans)
        return [request for i in ids if (request := self.table.get(i)) is not None]

    def _fail(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self._outbox.fail(request, InternalError("the engine failed while it worked on this"))

    def _measure(self, plan: StepPlan) -> None:
        counts = self.table.counts
        work_left = not plan.is_empty and any(counts[state] for state in _WORKING)
        self._meter.num_preemptions += len(plan.preempted)
        self._meter.end(
            self._clock(),
            has_work=work_left,
            num_chunk_tokens=sum(chunk.num_tokens for chunk in plan.chunks),
            num_decodes=len(plan.decodes),
        )

    def _publish(self) -> Frame:
        self._outbox.frame.cache = self.placement.cache.take_change()
        self._outbox.frame.load = self.load.due(at_once=bool(self._outbox.frame.ended))
        return self._outbox.take()
