"""Hidden states of prompts, pooled as they are computed: of a last token, or of all.

    chunk of a prompt -> hidden states of its rows -> summed up, or the last one -> Pooled

A sum stays with its request, so that a prompt may come in chunks, and one that was preempted goes
on where its rows were summed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch

from cluster.deadline import Clock
from cluster.errors import InternalError
from engine.model.pooled_head import PooledHead
from engine.step.batch.step_work import Span
from engine.step.placement import Placement
from engine.step.requests.request import Request
from engine.step.requests.table import RequestTable
from engine.step.telling.frame_writer import FrameWriter


class PromptPooling:
    """Of one engine."""

    def __init__(
        self,
        head: PooledHead,
        table: RequestTable,
        placement: Placement,
        writer: FrameWriter,
        *,
        clock: Clock,
    ) -> None:
        self._head = head
        self._table = table
        self._placement = placement
        self._writer = writer
        self._clock = clock
        self._sums = WeakKeyDictionary[Request, torch.Tensor]()
        """float64 [hidden], of rows that count."""

    def take(self, hidden: torch.Tensor, spans: Sequence[Span]) -> int:
        """Tells of the prompts that end; returns of how many.

        `hidden` is float32 [num_logits, hidden], in the order of the spans' `logit_rows`.
        """
        hidden, row, num_told = hidden.cpu(), 0, 0
        for span in spans:
            num_rows = len(span.logit_rows)
            request = self._table.get(span.sequence.request_id)
            if request is not None:
                num_told += self._take(request, span, hidden[row : row + num_rows])
            row += num_rows
        return num_told

    def _take(self, request: Request, span: Span, rows: torch.Tensor) -> bool:
        sequence = span.sequence
        completes = span.completes
        pooled = rows[-1] if completes else None
        if sequence.num_scored is not None:
            total = self._summed(request, rows)
            sequence.num_scored += len(span.scored_rows)
            pooled = (total / sequence.num_prompt).float() if completes else None
        self._placement.record(sequence, span.end)
        return pooled is not None and self._tell(request, pooled)

    def _summed(self, request: Request, rows: torch.Tensor) -> torch.Tensor:
        total = rows.sum(dim=0, dtype=torch.float64)
        before = self._sums.get(request)
        self._sums[request] = total = total if before is None else before + total
        return total

    def _tell(self, request: Request, pooled: torch.Tensor) -> bool:
        request.first_token_s = self._clock()
        values = self._head.told(pooled, request.body.dimensions)
        if not values.isfinite().all():
            self._writer.fail(request, InternalError("the prompt's hidden states are no numbers"))
            return False
        self._writer.pooled(request, values.numpy().astype("<f4").tobytes())
        return True
