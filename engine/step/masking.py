"""Rows of a step whose requests have a grammar: masks are begun before the forward pass, and taken
where tokens are chosen.

    begin(spans) -> forward -> take -> allowed(sequence) | failure(sequence)
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from cluster.errors import SplitserveError
from cluster.process.own_cores import available_cores
from engine.runner.model_runner import Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masks import MaskedRow, MaskMaker
from engine.step.batch.step_work import Span
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from kernels.cpu.team import TEAM


class Masking:
    """One engine's. Not asked while no request has a grammar."""

    def __init__(self, table: RequestTable, masks: MaskMaker | None) -> None:
        """`masks`: None where no grammar can be followed, and none comes."""
        self._table = table
        self._masks = masks
        self._begun: list[Sequence] = []
        self._taken: dict[Sequence, torch.Tensor] = {}

    @classmethod
    def of(cls, table: RequestTable, replica: Replica, grammars: GrammarCompiler | None) -> Masking:
        """For grammars that are compiled there."""
        if grammars is None:
            return cls(table, None)
        busy = TEAM.num_threads if replica.kv.device.type == "cpu" else 1
        spare = max(1, available_cores() - busy)
        return cls(table, MaskMaker(replica.vocab_size, grammars.meter, num_threads=spare))

    def begin(self, spans: Ordered[Span]) -> None:
        """Before the forward pass of these spans, whose tokens change no more until `take`."""
        self._begun, rows = list[Sequence](), list[MaskedRow]()
        for span in spans:
            request = self._table.get(span.sequence.request_id)
            if span.completes and request is not None and _is_masked(request):
                self._begun.append(span.sequence)
                rows.append(_row_of(request, span.sequence))
        if rows and self._masks is not None:
            self._masks.begin(rows)

    def take(self) -> None:
        """Once the logits are there; waits for what is not done."""
        begun, self._begun = self._begun, []
        self._taken = {}
        if begun and self._masks is not None:
            self._taken = dict(zip(begun, self._masks.take(), strict=True))

    def allowed(self, sequence: Sequence) -> torch.Tensor | None:
        """int32 words, a bit for each token; None: any may come."""
        return self._taken.get(sequence)

    def failure(self, sequence: Sequence) -> SplitserveError | None:
        """Why the sequence's grammar cannot be followed any further."""
        constraint = sequence.constraint
        return None if constraint is None else constraint.error


def _is_masked(request: Request) -> bool:
    """Tokens of it are chosen from these logits: not where a prefill worker has given them."""
    return request.grammar is not None and (request.is_open or request.first_tokens is None)


def _row_of(request: Request, sequence: Sequence) -> MaskedRow:
    if sequence.constraint is None:
        assert request.grammar is not None, "only rows with a grammar are masked"
        sequence.constraint = Constraint(request.grammar.start())
    return MaskedRow(sequence.constraint, sequence.token_ids, sequence.num_prompt)
