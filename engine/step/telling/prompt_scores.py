"""Logprobs of a prompt's own tokens, for requests that ask for them.

    chunk of a prompt -> logits of its rows -> each scores the token after it -> PromptScored

The prompt's last row scores nothing: the first token is drawn from it. Logits take much memory
(64 rows of 128k tokens: 32 MiB), so a step has only so many of them, and such a prompt goes through
in smaller chunks. A sequence that was preempted goes on where its scores end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.contract.messages import PromptScored
from engine.sampling.prompt_logprobs import score
from engine.step.batch.step_work import Span
from engine.step.requests.table import RequestTable
from engine.step.telling.frame_writer import FrameWriter


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
