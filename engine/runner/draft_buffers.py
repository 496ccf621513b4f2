"""The inputs of replayed steps with drafts: on the device, always at the same addresses.

    rows of a sequence   padding ... | last known token | draft 1 | draft 2 | ...
    padding              of a row: token 0 at the place of an older token, which it sees with all
                         before it; of a sequence: as many rows of a block that nobody owns
    logits               of the rows that are no padding, in the batch's order; then of any row

Padding is in front, so that a sequence's last row is the last of its context, as in every ragged
batch. All padding writes to the block that nobody owns. A step's numbers travel in one copy from
page-locked memory.
"""

from __future__ import annotations

import torch

from engine.memory.page_locked import staged
from engine.model.ragged_batch import RaggedBatch
from engine.runner.draft_shapes import DraftShape, DraftShapes
from engine.runner.static_tables import BufferShape, StaticTables


class DraftBuffers:
    """Static tensors, and what the host sends to them."""

    def __init__(self, shapes: DraftShapes, shape: BufferShape, device: torch.device) -> None:
        """`shape.num_rows`: of sequences."""
        captured = shapes.all()
        self.num_rows = max((one.num_rows for one in captured), default=0)
        longest = max((one.rows_each for one in captured), default=1)
        self._device = device
        self._scratch_slot = shape.scratch_block * shape.block_size
        self._max_context_tokens = shape.max_context_tokens
        num_seqs = shape.num_rows
        # token_ids, positions, slots, logit_rows; and of sequences, context_lens
        self._host = torch.zeros(5, max(self.num_rows, num_seqs), dtype=torch.int64)
        self._numbers = self._host.to(device, copy=True)
        self._context_lens = torch.ones(num_seqs, dtype=torch.int32, device=device)
        self._tables = StaticTables(shape, device, padding_tokens=longest)
        starts = torch.arange(num_seqs + 1, dtype=torch.int32, device=device)
        self._query_starts = {each: starts * each for each in {one.rows_each for one in captured}}
        self._places = torch.arange(self._host.shape[1])

    def batch(self, shape: DraftShape) -> RaggedBatch:
        """Views, for capture. Contexts may grow up to the limit."""
        token_ids, positions, slots, logit_rows = self._numbers[:4, : shape.num_rows]
        return RaggedBatch(
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            query_starts=self._query_starts[shape.rows_each][: shape.num_seqs + 1],
            context_lens=self._context_lens[: shape.num_seqs],
            block_tables=self._tables.tensor[: shape.num_seqs],
            logit_rows=logit_rows,
            num_decodes=0,
            max_query_len=shape.rows_each,
            max_context_len=self._max_context_tokens,
            rows_each=shape.rows_each,
        )

    def clear(self, shape: DraftShape) -> None:
        """Nothing but padding, for capture."""
        self._pad(shape, 0)
        self._numbers.copy_(staged(self._host, self._device), non_blocking=True)
        self._tables.fill(torch.empty(0, 1, dtype=torch.int32), shape.num_seqs)

    def unpack(self, shape: DraftShape) -> None:
        """Part of the captured work: contexts in the kernels' integers."""
        self._context_lens[: shape.num_seqs].copy_(self._numbers[4, : shape.num_seqs])

    def fill(self, batch: RaggedBatch, shape: DraftShape) -> None:
        """Puts a batch, on the host, into a shape that holds it; pads the rest. No context is
        shorter than `rows_each`.

        Returns before the device has the numbers; the work of the current stream sees them. The
        batch may change at once, and steps of before need not be done.
        """
        num_seqs, num_tokens = len(batch.context_lens), len(batch.token_ids)
        self._pad(shape, num_seqs)
        host, each = self._host, shape.rows_each
        contexts = batch.context_lens.long()
        ends = batch.query_starts[1:].long()
        own = host[1, : num_seqs * each].view(num_seqs, each)
        own.copy_((contexts - each)[:, None] + self._places[:each])
        shifts = torch.arange(1, num_seqs + 1) * each - ends  # [num_seqs]
        lengths = ends - batch.query_starts[:-1].long()
        rows = self._places[:num_tokens] + shifts.repeat_interleave(lengths)
        host[0, rows] = batch.token_ids
        host[1, rows] = batch.positions
        host[2, rows] = batch.slots
        host[3, :num_tokens] = rows[batch.logit_rows]
        host[4, :num_seqs] = contexts
        self._numbers.copy_(staged(host, self._device), non_blocking=True)
        self._tables.fill(batch.block_tables, shape.num_seqs)

    def _pad(self, shape: DraftShape, num_seqs: int) -> None:
        """All rows, and the sequences from `num_seqs` on."""
        host, num_rows, each = self._host, shape.num_rows, shape.rows_each
        host[0, :num_rows] = 0
        host[1, :num_rows] = self._places[:each].repeat(shape.num_seqs)
        host[2, :num_rows] = self._scratch_slot
        host[3, :num_rows] = 0
        host[4, num_seqs : shape.num_seqs] = each
