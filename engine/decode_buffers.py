"""The inputs of replayed decode steps: on the device, always at the same addresses.

    rows     | sequences of the batch ............ | padding up to a captured size |
    padding    token 0 at position 0 of a block that nobody owns: it writes there, and sees itself

A step's numbers travel in one copy from page-locked memory; block tables only when they changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.ragged_batch import RaggedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferShape:
    """What the buffers hold at most."""

    num_rows: int
    max_context_tokens: int
    block_size: int
    scratch_block: int
    """A block of the pool for padding rows."""

    @property
    def max_blocks(self) -> int:
        """Width of the block tables."""
        return -(-self.max_context_tokens // self.block_size)


class DecodeBuffers:
    """Static tensors, and their copies on the host."""

    def __init__(self, shape: BufferShape, device: torch.device) -> None:
        self.shape = shape
        rows, columns = shape.num_rows, shape.max_blocks
        pinned = device.type == "cuda"
        # token_ids, positions, slots, context_lens
        self._host = torch.zeros(4, rows, dtype=torch.int64, pin_memory=pinned)
        self._host_tables = torch.zeros(rows, columns, dtype=torch.int32, pin_memory=pinned)
        self._host_tables[:, 0] = shape.scratch_block
        self._numbers = torch.zeros(4, rows, dtype=torch.int64, device=device)
        self._context_lens = torch.ones(rows, dtype=torch.int32, device=device)
        self._tables = self._host_tables.to(device)
        self._query_starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        self._rows = torch.arange(rows, device=device)
        self._pad(0)
        self._numbers.copy_(self._host)

    def batch(self, num_rows: int) -> RaggedBatch:
        """Views of the first rows, for capture. Contexts may grow up to the shape's limit."""
        token_ids, positions, slots, _ = self._numbers[:, :num_rows]
        return RaggedBatch(
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            query_starts=self._query_starts[: num_rows + 1],
            context_lens=self._context_lens[:num_rows],
            block_tables=self._tables[:num_rows],
            logit_rows=self._rows[:num_rows],
            num_decodes=num_rows,
            max_query_len=1,
            max_context_len=self.shape.max_context_tokens,
        )

    def unpack(self, num_rows: int) -> None:
        """Part of the captured work: contexts in the kernels' integers."""
        self._context_lens[:num_rows].copy_(self._numbers[3, :num_rows])

    def fill(self, batch: RaggedBatch, num_rows: int) -> None:
        """Puts a batch of decodes, on the host, into the first of `num_rows` rows; pads the others.

        Returns before the device has the numbers; the work of the current stream sees them. May be
        called again once the work of the step before is done, as it is when its tokens are known.
        """
        num_seqs = batch.num_decodes
        for row, values in enumerate(
            (batch.token_ids, batch.positions, batch.slots, batch.context_lens)
        ):
            self._host[row, :num_seqs] = values
        self._pad(num_seqs)
        self._numbers.copy_(self._host, non_blocking=True)
        self._fill_tables(batch.block_tables, num_rows)

    def _fill_tables(self, tables: torch.Tensor, num_rows: int) -> None:
        num_seqs, width = tables.shape
        width = min(width, self.shape.max_blocks)  # spare columns of a batch are never read
        host = self._host_tables[:num_rows]
        is_padded = bool((host[num_seqs:, 0] == self.shape.scratch_block).all())
        if is_padded and torch.equal(host[:num_seqs, :width], tables[:, :width]):
            return
        host[:num_seqs, :width] = tables[:, :width]
        host[num_seqs:, 0] = self.shape.scratch_block
        # Rows behind are as they were; columns behind belong to longer sequences of before.
        self._tables[:num_rows, :width].copy_(host[:, :width], non_blocking=True)

    def _pad(self, num_seqs: int) -> None:
        self._host[:2, num_seqs:] = 0
        self._host[2, num_seqs:] = self.shape.scratch_block * self.shape.block_size
        self._host[3, num_seqs:] = 1
