"""The inputs of replayed decode steps: on the device, always at the same addresses.

    rows     | sequences of the batch ............ | padding up to a captured size |
    padding    token 0 at position 0 of a block that nobody owns: it writes there, and sees itself

A step's numbers travel in one copy from page-locked memory; block tables only when they changed.
A row's token comes from the host, or is one that the step launched last has sampled and the host
has not seen yet: which of them is the row's pick in

    candidates | token of row 0, 1, ... from the host | sampled for row 0, 1, ... of the last step |
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.memory.page_locked import staged
from engine.model.ragged_batch import RaggedBatch
from engine.runner.static_tables import BufferShape, StaticTables


class DecodeBuffers:
    """Static tensors, and what the host has sent to them."""

    def __init__(self, shape: BufferShape, device: torch.device) -> None:
        self.shape = shape
        self._device = device
        rows = shape.num_rows
        # positions, slots, context_lens, picks, token_ids
        self._host = torch.zeros(5, rows, dtype=torch.int64)
        # as the host's, and sampled ids behind them
        self._numbers = torch.zeros(6, rows, dtype=torch.int64, device=device)
        self._candidates = self._numbers[4:].view(-1)  # [2 * num_rows]
        self._token_ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self._context_lens = torch.ones(rows, dtype=torch.int32, device=device)
        self._tables = StaticTables(shape, device)
        self._query_starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        self._rows = torch.arange(rows, device=device)
        self._own_picks = torch.arange(rows)
        self._pad(0)
        self._numbers[:5].copy_(self._host)

    def batch(self, num_rows: int) -> RaggedBatch:
        """Views of the first rows, for capture. Contexts may grow up to the shape's limit."""
        positions, slots = self._numbers[:2, :num_rows]
        return RaggedBatch(
            token_ids=self._token_ids[:num_rows],
            positions=positions,
            slots=slots,
            query_starts=self._query_starts[: num_rows + 1],
            context_lens=self._context_lens[:num_rows],
            block_tables=self._tables.tensor[:num_rows],
            logit_rows=self._rows[:num_rows],
            num_decodes=num_rows,
            max_query_len=1,
            max_context_len=self.shape.max_context_tokens,
        )

    def unpack(self, num_rows: int) -> None:
        """Part of the captured work: tokens as picked, contexts in the kernels' integers."""
        picks = self._numbers[3, :num_rows]
        torch.index_select(self._candidates, 0, picks, out=self._token_ids[:num_rows])
        self._context_lens[:num_rows].copy_(self._numbers[2, :num_rows])

    def fill(
        self, batch: RaggedBatch, num_rows: int, sources: Sequence[int | None] | None = None
    ) -> None:
        """Puts a batch of decodes, on the host, into the first of `num_rows` rows; pads the others.

        `sources`: for each sequence the row of `sampled` that holds its token; None: the batch's.
        Returns before the device has the numbers; the work of the current stream sees them. The
        batch may change at once, and steps of before need not be done.
        """
        num_seqs = batch.num_decodes
        self._host[3] = self._own_picks
        if sources is not None:
            self._host[3, :num_seqs] = self._picks(sources)
        for row, values in zip(
            (0, 1, 2, 4),
            (batch.positions, batch.slots, batch.context_lens, batch.token_ids),
            strict=True,
        ):
            self._host[row, :num_seqs] = values
        self._pad(num_seqs)
        self._numbers[:5].copy_(staged(self._host, self._device), non_blocking=True)
        self._tables.fill(batch.block_tables, num_rows)

    def keep_sampled(self, ids: torch.Tensor) -> None:
        """Tokens that the step just launched has sampled: int64 [num_seqs], on the device."""
        self._numbers[5, : len(ids)].copy_(ids)

    def _picks(self, sources: Sequence[int | None]) -> torch.Tensor:
        num_rows = self.shape.num_rows
        return torch.tensor(
            [row if at is None else num_rows + at for row, at in enumerate(sources)]
        )

    def _pad(self, num_seqs: int) -> None:
        self._host[0, num_seqs:] = 0
        self._host[1, num_seqs:] = self.shape.scratch_block * self.shape.block_size
        self._host[2, num_seqs:] = 1
        self._host[4, num_seqs:] = 0
