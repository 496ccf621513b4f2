"""From a plan to what is computed: preempts, makes room, admits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.step import split_prompt
from engine.step.batch_builder import Span
from engine.step.lifecycle import SequenceState
from engine.step.outbox import Outbox
from engine.step.placement import Placement
from engine.step.plan import SequenceKey, StepPlan
from engine.step.request import Request
from engine.step.request_table import RequestTable
from engine.step.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a step computes: the spans, decodes first, and the blocks to copy before."""

    spans: list[Span]
    num_decodes: int
    copies: list[tuple[int, int]]

    @property
    def is_plain_decode(self) -> bool:
        """True when decodes are all that there is to do."""
        return not self.copies and 0 < self.num_decodes == len(self.spans)

    @property
    def sequences(self) -> list[Sequence]:
        """In the order of the spans."""
        return [span.sequence for span in self.spans]

    def part_of(self, request_id: str) -> StepWork:
        """What of it is one request's; its blocks have been copied."""
        own = [span.sequence.request_id == request_id for span in self.spans]
        return StepWork(
            spans=[span for span, is_own in zip(self.spans, own, strict=True) if is_own],
            num_decodes=sum(own[: self.num_decodes]),
            copies=[],
        )


class Preparation:
    """Makes plans true, as far as blocks and states go."""

    def __init__(self, table: RequestTable, placement: Placement, outbox: Outbox) -> None:
        self._table = table
        self._placement = placement
        self._outbox = outbox

    def carry_out(self, plan: StepPlan) -> StepWork:
        """Preempts, makes room, admits; returns what is to be computed, decodes first."""
        found = {s.key: (r, s) for r in self._table for s in r.sequences}
        for key in plan.preempted:
            _, sequence = found[key]
            sequence.release()
            sequence.life.advance(SequenceState.QUEUED)
        shares = [(found[key][1], 1) for key in plan.decodes]
        shares += [(found[chunk.key][1], chunk.num_tokens) for chunk in plan.chunks]
        copies = [self._placement.make_room(s) for s, _ in shares if s.lease is not None]
        for key in plan.admitted:
            self._admit(*found[key])
        return StepWork(
            spans=[Span(s, num_tokens) for s, num_tokens in shares if s.lease is not None],
            num_decodes=len(plan.decodes),
            copies=[pair for pair in copies if pair is not None],
        )

    def admit(self, keys: Iterable[SequenceKey]) -> None:
        """Queued sequences that a plan lets in, apart from its other work."""
        wanted = set(keys)
        if wanted:
            for request, sequence in list(self._table.waiting()):
                if sequence.key in wanted:
                    self._admit(request, sequence)

    def _admit(self, request: Request, sequence: Sequence) -> None:
        if not self._placement.admit(request, sequence):
            return  # an admission before it evicted what it had counted on: it stays queued
        if request.is_remote:
            sequence.life.advance(SequenceState.RECEIVING)
            request.num_cached_tokens = sequence.num_computed
            self._outbox.frame.reserved.append(split_prompt.reserved(request, self._placement))
        else:
            sequence.life.advance(SequenceState.PREFILLING)
            self._outbox.started(request, sequence)
