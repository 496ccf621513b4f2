"""What a head reads of the states that the target's steps leave, for all sequences.

a step is computed       the states of its rows are there: kept, of rows that were right
they get many            pairs of states and tokens are read, so that few are left
a block is full          or a part of a prompt is computed: all pairs up to there are read, before
                         anybody is told of the block
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from engine.runner.model_runner import DraftHeads
from engine.step.drafters.draft_rows import ReadRow, reading
from engine.step.drafters.drafter import SeenRows
from engine.step.drafters.head_marks import HeadMarks
from engine.step.drafting.head_kv import HeadKv
from engine.step.drafting.kept_rates import OwnKeptRates, SharedKeptRates
from engine.step.requests.sequence import Sequence

MOST_PENDING = 16
"""States of a sequence that are kept for its next draft: those of a step with the longest draft, or
of as many steps without. More are read at once."""


class HeadReader:
    """One engine's."""

    def __init__(self, heads: DraftHeads, *, block_size: int, rates: SharedKeptRates) -> None:
        self._heads, self._block_size, self._rates = heads, block_size, rates
        self._marks = None if heads.blocks is None else HeadMarks(heads.blocks, block_size)
        self._zero: torch.Tensor | None = None
        self.era = 0
        """What was read in an older one is in doubt."""

    def take(self, rows: Ordered[SeenRows]) -> list[Sequence]:
        """Keeps the states of a step that was computed last. Returns whose pairs are to be read
        now."""
        states = self._heads.runner.states()
        found, others = list[Sequence](), list[Sequence]()
        has_prompts = any(one.num_right > MOST_PENDING for one in rows)
        for one in rows:
            sequence, num_rows = one.sequence, one.num_right
            if sequence.lease is None or num_rows <= 0:
                continue  # it has ended, or none of its guesses was right
            kv = self._kv_of(sequence, one.place, states)
            own = states[one.row : one.row + num_rows]
            is_small = has_prompts and num_rows <= MOST_PENDING
            kv.saw(own.clone() if is_small else own)  # else a prompt's states would stay with it
            if kv.num_pending > MOST_PENDING or self._is_due(kv, one):
                found.append(sequence)
            elif kv.num_pending > MOST_PENDING // 2:
                others.append(sequence)
        return found + others if found else found  # a forward for each would cost more than rows

    def find(self, sequence: Sequence) -> HeadKv | None:
        """Of a sequence that begins to decode with what its blocks have; None: they have nothing,
        or not all."""
        place = len(sequence.token_ids) - 1
        if place > 0 and place == sequence.num_computed:
            sequence.head_kv = self._found(sequence, place, OwnKeptRates(self._rates))
        return sequence.head_kv

    def read(self, sequences: Ordered[Sequence]) -> None:
        """All pairs whose states are there, but the one that is guessed after."""
        kvs = [kv for sequence in sequences if (kv := sequence.head_kv) is not None]
        self.fuse(kvs)
        states = [(kv.fused, kv.num_read - 1) for kv in kvs]
        rows, hidden = list[ReadRow](), list[torch.Tensor]()
        for sequence, kv in zip(sequences, kvs, strict=True):
            row, own = self.next_row(sequence, kv, kv.num_pending - 1, 0)
            rows.append(row)
            hidden.append(own)
        if some := [row for row in rows if row.token_ids]:
            batch = reading(some, self._block_size, wants_logits=False)
            self._heads.runner.forward(batch, torch.cat(hidden))
        for sequence, kv, row, (fused, first) in zip(sequences, kvs, rows, states, strict=True):
            kv.read(len(row.token_ids))
            if self._marks is not None:
                self._marks.mark(sequence, kv, fused, first)
        self._heads.wait()  # else the next step would be charged with it

    def fuse(self, kvs: Ordered[HeadKv]) -> None:
        """What the target left of each becomes what the head reads."""
        pending = [states for kv in kvs for states in kv.pending]
        if not pending:
            return
        fused = self._heads.runner.fused(torch.cat(pending))
        lengths = [sum(map(len, kv.pending)) for kv in kvs]
        for kv, states in zip(kvs, torch.split(fused, lengths), strict=True):
            kv.fuse(states)

    def next_row(
        self, sequence: Sequence, kv: HeadKv, num_pairs: int, num_guesses: int
    ) -> tuple[ReadRow, torch.Tensor]:
        """With their states; blocks reach as far as guesses after them are written."""
        reach = kv.num_read + num_pairs + num_guesses
        if self._marks is not None and num_pairs + num_guesses:
            self._marks.forget(kv, reach)
        pairs = kv.take(num_pairs, sequence.token_ids)
        row = ReadRow(pairs.token_ids, kv.num_read - kv.first, kv.table(reach))
        return row, pairs.states

    def _is_due(self, kv: HeadKv, rows: SeenRows) -> bool:
        """Others may have its blocks from now on."""
        if self._marks is None:
            return False
        size = self._block_size
        return rows.is_prompt or kv.num_seen // size > rows.place // size

    def _kv_of(self, sequence: Sequence, place: int, states: torch.Tensor) -> HeadKv:
        """As the state at `place` goes on with it, or begins anew."""
        kv, lease = sequence.head_kv, sequence.blocks
        if kv is not None and kv.goes_on(lease, place, era=self.era):
            return kv
        rates = OwnKeptRates(self._rates) if kv is None else kv.rates
        kv = self._found(sequence, place, rates) if place else None
        if kv is None:
            kv = HeadKv.cold(
                lease,
                self._nothing(states),
                rates,
                place=place,
                block_size=self._block_size,
                era=self.era,
            )
        sequence.head_kv = kv
        return kv

    def _found(self, sequence: Sequence, place: int, rates: OwnKeptRates) -> HeadKv | None:
        if self._marks is None or (state := self._marks.state_before(sequence, place)) is None:
            return None
        return HeadKv(
            sequence.blocks,
            state,
            rates,
            place=place,
            is_whole=True,
            block_size=self._block_size,
            era=self.era,
        )

    def _nothing(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [1, hidden]: what stands for states that nobody has seen."""
        if self._zero is None:
            none = states.new_zeros(1, states.shape[1])
            self._zero = torch.zeros_like(self._heads.runner.fused(none))
        return self._zero
