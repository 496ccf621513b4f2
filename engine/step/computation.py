"""The part of a step that computes: copies, forward, tokens; and what happens when that fails.

    compute(work) -> tokens in the writer, or the requests that failed have ended

A forward that fails is tried again for each request by itself, so that the culprit ends alone. One
that loses a rank is the engine's end: RankLost goes through.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

import structlog
import torch

from cluster.errors import InternalError, RankLost
from engine.runner.model_runner import ModelRunner
from engine.step import split_prompt
from engine.step.batch.builder import BatchBuilder
from engine.step.batch.step_work import StepWork
from engine.step.drafters.drafter import StatesReader
from engine.step.drafters.heads import seen_rows
from engine.step.masking import Masking
from engine.step.placement import Placement
from engine.step.prompt_pooling import PromptPooling
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from engine.step.step_health import StepHealth, is_device_error
from engine.step.telling.frame_writer import FrameWriter
from engine.step.telling.prompt_scores import PromptScores
from engine.step.token_choice import TokenChoice
from engine.step.verification import Verification

_LOG = structlog.get_logger()
_NOBODY: frozenset[Sequence] = frozenset()


class Computation:
    """One engine's. What it raises, EngineBroken or RankLost, is its end."""

    def __init__(
        self,
        runner: ModelRunner,
        batches: BatchBuilder,
        *,
        placement: Placement,
        table: RequestTable,
        token_choice: TokenChoice,
        masking: Masking,
        verification: Verification,
        writer: FrameWriter,
        pooled: PromptPooling | None = None,
        states_reader: StatesReader | None = None,
    ) -> None:
        """`pooled`: of a model that pools. `states_reader`: None: nobody reads what steps leave."""
        self._runner = runner
        self._batches = batches
        self._placement = placement
        self._table = table
        self._token_choice = token_choice
        self._masking = masking
        self._verification = verification
        self._writer = writer
        self._pooled = pooled
        self.states_reader = states_reader
        self._scores = PromptScores(table, writer)
        self._health = StepHealth()

    def compute(self, work: StepWork) -> None:
        """Forward, then tokens."""
        try:
            self._runner.copy_blocks(work.copies)
        except Exception as error:
            _LOG.exception(
                "blocks could not be copied; their requests end", num_blocks=len(work.copies)
            )
            self.fail(self._table.of(work.sequences), error)
        else:
            for part in (work,) if self._pooled is None else work.by_wanted():
                self._compute_copied(part)

    def fail(self, requests: list[Request], error: Exception) -> None:
        """Ends them for what went wrong in their step."""
        for request in requests:
            self._writer.fail(
                request,
                InternalError(
                    "the engine failed while it computed this request; its log has the cause"
                ),
            )
        self._health.failed(error, requests)

    def note_tokens(self, num_given: int, waiting: list[Request]) -> None:
        """A step whose completed sequences were those of `waiting` gave this many tokens."""
        if num_given:
            self._health.succeeded()
        elif waiting:
            self._health.failed(ArithmeticError("no logits were numbers"), waiting)

    def _compute_copied(self, work: StepWork) -> None:
        try:
            if self._table.num_constrained:
                self._masking.begin(work.spans)
            batch = self._batches.build(work.spans, work.num_decodes)
            if work.is_pooled:
                batch = replace(batch, is_pooled=True)
            logits = self._runner.forward(batch)
        except RankLost:
            raise
        except Exception as error:
            self._meet_failure(work, error)
        else:
            self._take_logits(work, logits)

    def _meet_failure(self, work: StepWork, error: Exception) -> None:
        requests = self._table.of(work.sequences)
        _LOG.error(
            "a step could not be computed; of several requests each is tried alone",
            num_requests=len(requests),
            exc_info=error,
        )
        if len(requests) == 1 or is_device_error(error):
            self.fail(requests, error)
            return
        for request in requests:
            self._compute_copied(work.part_of(request.request_id))

    def _take_logits(self, work: StepWork, logits: torch.Tensor) -> None:
        """An exception ends the requests of this step."""
        late = self._masking.take(work.spans) if self._table.num_constrained else _NOBODY
        completed = [span.sequence for span in work.spans if span.completes]
        waiting = self._table.of([s for s in completed if s not in late] if late else completed)
        reader = None if work.is_pooled else self.states_reader
        seen = [] if reader is None else seen_rows(work.spans)
        try:
            if work.num_drafted:
                num_given = self._verification.take(logits, work.spans, late)
            elif work.is_pooled and self._pooled is not None:
                num_given = self._pooled.take(logits, work.spans)
            else:
                num_given = self._take_known(work, logits, completed, late)
        except Exception as error:
            _LOG.exception(
                "what a step gave could not be used; its requests end",
                num_sequences=len(work.spans),
            )
            self.fail(self._table.of(work.sequences), error)
        else:
            if reader is not None:
                reader.saw(seen)
            if not num_given:
                waiting = [r for r in waiting if r.request_id not in _at_grammars_end(completed)]
            self.note_tokens(num_given, waiting)

    def _take_known(
        self,
        work: StepWork,
        logits: torch.Tensor,
        completed: list[Sequence],
        late: AbstractSet[Sequence],
    ) -> int:
        """`late`: of `completed`, whose masks are not there: they compute their last known token
        once more."""
        if work.has_chunks:
            logits = self._scores.take(logits, work.spans)
        for span in work.spans:
            self._placement.record(span.sequence, span.end - (span.sequence in late))
        if late:
            rows = [row for row, sequence in enumerate(completed) if sequence not in late]
            logits, completed = logits[rows], [completed[row] for row in rows]
        num_given = self._token_choice.advance(logits, completed)
        if work.has_chunks:
            self._announce(work)
        return num_given

    def _announce(self, work: StepWork) -> None:
        for request in self._table.of(work.sequences):
            if request.is_export:
                self._writer.prefilled(split_prompt.announce(request, self._placement))


def _at_grammars_end(sequences: list[Sequence]) -> set[str]:
    """Requests of those whose grammar cannot be followed further: the engine did not fail them."""
    return {
        sequence.request_id
        for sequence in sequences
        if sequence.constraint is not None and sequence.constraint.failure is not None
    }
