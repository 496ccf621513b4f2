"""Logprobs of a prompt's own tokens, for requests that ask for them.

    chunk of a prompt -> logits of its rows -> each scores the token after it -> PromptScored

The prompt's last row scores nothing: the first token is drawn from it. Logits take much memory
(64 rows of 128k tokens: 32 MiB), so a step has only so many of them, and such a prompt goes through
in smaller chunks. A sequence that was preempted goes on where its scores end.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

import torch

from cluster.models.footprint import SCORED_ROWS
from engine.contract.messages import PromptScored
from engine.sampling.prompt_logprobs import score
from engine.step.frame_writer import FrameWriter
from engine.step.plan import Chunk, SequenceKey, StepPlan
from engine.step.request_table import RequestTable
from engine.step.step_work import Span


def limit_scored(plan: StepPlan, scoring: Container[SequenceKey]) -> StepPlan:
    """The plan with at most SCORED_ROWS tokens in the chunks of prompts that are scored."""
    rows_left, chunks = SCORED_ROWS, list[Chunk]()
    for chunk in plan.chunks:
        if chunk.key in scoring:
            chunk = replace(chunk, num_tokens=min(chunk.num_tokens, rows_left))
            rows_left -= chunk.num_tokens
        if chunk.num_tokens:
            chunks.append(chunk)
    return replace(plan, chunks=tuple(chunks))


class PromptScores:
    """Takes the rows that score out of a step's logits."""

    def __init__(self, table: RequestTable, writer: FrameWriter) -> None:
        self._table = table
        self._writer = writer

    def take(self, logits: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
        """Tells the scores; returns the other rows: one for each span that completes.

        `logits` is float32 [num_logits, vocab_size], in the order of the spans' `logit_rows`.
        Called before the sequences count the step's tokens as computed.
        """
        others, row = list[int](), 0
        for span in spans:
            num_scored = len(span.scored_rows)
            if num_scored:
                self._tell(logits[row : row + num_scored], span)
            row += num_scored
            if span.completes:
                others.append(row)
                row += 1
        return logits if len(others) == len(logits) else logits[others]

    def _tell(self, logits: torch.Tensor, span: Span) -> None:
        sequence, rows = span.sequence, span.scored_rows
        request = self._table.get(sequence.request_id)
        if request is None:
            return
        first = sequence.num_computed + rows.start + 1
        sequence.num_scored = first + len(rows) - 1
        targets = sequence.token_ids[first : first + len(rows)]
        tokens = score(logits, targets, num_top=request.params.prompt_logprobs or 0)
        self._writer.frame.scored.append(PromptScored(request.request_id, first, tokens))
