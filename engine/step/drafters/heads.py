"""Drafts by a head over the target's states, of all sequences together.

    a step is computed       the states of its rows are there: kept, of rows that were right
    they get many            pairs of states and tokens are read: see head_reader.py
    a draft is wanted        the last pairs are read, and the next tokens guessed, one forward each
    after the verification   what was guessed is written over by what came, from the target's states

What a draft costs is measured, and in the plan's goodput: where it does not pay nothing is guessed.
A head that fails costs its drafts, and after MAX_FAILURES nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np
import torch

from cluster.deadline import Clock
from engine.contract.draft_numbers import DrafterKind
from engine.model.head_output import HeadOutput
from engine.runner.model_runner import DraftHeads, Replica
from engine.step.batch.step_work import Span, Wanted
from engine.step.drafters.draft_rows import ReadRow, block_tables, guessing, reading
from engine.step.drafters.draft_sampling import GuessSampler, Making
from engine.step.drafters.drafter import NOTHING, DraftProspect, DraftTime, SeenRows, StatesReader
from engine.step.drafters.guess_care import GuessCare
from engine.step.drafters.head_reader import HeadReader
from engine.step.drafting.draft import Draft
from engine.step.drafting.head_kv import HeadKv
from engine.step.grammar_drafts import outlook_for_drafts
from engine.step.planning.step_cost import StepCost
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence


class HeadsDrafter:
    """A Drafter, and a StatesReader."""

    kind = DrafterKind.HEADS
    has_price = True
    is_behind = False

    def __init__(
        self, heads: DraftHeads, replica: Replica, *, block_size: int, clock: Clock
    ) -> None:
        self._heads = heads
        self._sampler = GuessSampler(replica.eos_token_ids, replica.vocab_size)
        self._block_size = block_size
        self._care = GuessCare(
            self.kind,
            heads.share,
            doubt=self._doubt,
            noun="head",
            name=heads.name,
            clock=clock,
        )
        self._reader = HeadReader(heads, block_size=block_size, rates=self._care.rates)

    @property
    def states_reader(self) -> StatesReader:
        """See Drafter: itself."""
        return self

    @property
    def is_out(self) -> bool:
        """See Drafter."""
        return self._care.is_out

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> None:
        """See Drafter."""
        self._care.begin(cost, num_decodes, least)

    def rest(self) -> None:
        """See Drafter: states that come meanwhile are not kept, and it begins behind them."""
        self._care.rest()

    def prospect(self, request: Request, sequence: Sequence, most: int) -> DraftProspect:
        """See Drafter."""
        if self._care.is_out:
            return NOTHING
        if request.grammar is not None and outlook_for_drafts(sequence) is None:
            return NOTHING
        kv = sequence.head_kv or self._reader.find(sequence)
        if kv is None:
            return NOTHING
        kv.rates.fade()
        kv.settle(sequence.token_ids)
        if not self._is_ready(sequence):
            return NOTHING
        chances = kv.rates.chances(most, self._care.least)
        return self._care.promise(chances) if chances else NOTHING

    def draft(self, wanted: Ordered[Wanted]) -> list[Draft]:
        """See Drafter."""
        return self._care.draft(wanted, self._is_ready, self._guess)

    def settle(self) -> None:
        """See Drafter: it reads where states come."""

    def take_time(self) -> DraftTime:
        """See Drafter."""
        return self._care.take_time()

    def saw(self, rows: Ordered[SeenRows]) -> None:
        """See StatesReader."""
        if not self._care.is_resting and not self._care.is_out:
            self._care.read(lambda: self._read(rows))

    def _read(self, rows: Ordered[SeenRows]) -> int:
        """Of the target's steps alone: nothing is read of texts that came without."""
        if due := self._reader.take(rows):
            self._reader.read(due)
        return 0

    def _doubt(self) -> None:
        self._reader.era += 1

    def _is_ready(self, sequence: Sequence) -> bool:
        """The states of all its tokens but the last known one are there, over its own blocks."""
        kv = sequence.head_kv
        return (
            kv is not None
            and kv.num_pending > 0
            and kv.goes_on(sequence.lease, len(sequence.token_ids) - 1, era=self._reader.era)
        )

    def _guess(self, makings: list[Making]) -> tuple[int, int]:
        """See GuessCare."""
        rows, output = self._begin(makings)
        tables, hidden = block_tables(rows), output.hidden
        places = np.array([row.end for row in rows], dtype=np.int64)  # [num_seqs]
        num_rounds, num_rows = 1, sum(len(row.token_ids) for row in rows)
        self._sampler.guess(output.logits, makings)
        going = list(range(len(makings)))  # whose rows are in `hidden`
        while kept := [at for at, i in enumerate(going) if not makings[i].is_over]:
            going, hidden = [going[at] for at in kept], hidden[kept]
            batch = guessing(
                [makings[i].guesses[-1] for i in going],
                places[going] + num_rounds - 1,
                tables[going],
                self._block_size,
            )
            output = _wanted(self._heads.runner.forward(batch, hidden))
            hidden = output.hidden
            self._sampler.guess(output.logits, [makings[i] for i in going])
            num_rounds, num_rows = num_rounds + 1, num_rows + len(going)
        for making in makings:
            _kv(making).guessed(making.guesses, len(making.sequence.token_ids))
        return num_rounds, num_rows

    def _begin(self, makings: list[Making]) -> tuple[list[ReadRow], HeadOutput]:
        """Reads what is pending; its last row says what comes next."""
        self._reader.fuse([_kv(making) for making in makings])
        rows, hidden = list[ReadRow](), list[torch.Tensor]()
        for making in makings:
            kv = _kv(making)
            row, own = self._reader.next_row(
                making.sequence, kv, kv.num_pending, making.num_tokens - 1
            )
            rows.append(row)
            hidden.append(own)
        batch = reading(rows, self._block_size, wants_logits=True)
        output = _wanted(self._heads.runner.forward(batch, torch.cat(hidden)))
        for row, making in zip(rows, makings, strict=True):
            _kv(making).read(len(row.token_ids))
        return rows, output


def seen_rows(spans: Ordered[Span]) -> list[SeenRows]:
    """Of a step that is about to give its tokens."""
    rows, row = list[SeenRows](), 0
    for span in spans:
        is_prompt = span.sequence.life.state is SequenceState.PREFILLING
        rows.append(SeenRows(span.sequence, row, span.sequence.num_computed, is_prompt))
        row += span.num_tokens
    return rows


def _kv(making: Making) -> HeadKv:
    kv = making.sequence.head_kv
    assert kv is not None, "prospect was asked for"
    return kv


def _wanted(output: HeadOutput | None) -> HeadOutput:
    assert output is not None, "its logits were wanted"
    return output
