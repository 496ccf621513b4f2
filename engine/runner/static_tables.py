"""Block tables of replayed steps: on the device, always at the same address, sent when they have
changed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.memory.page_locked import staged


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferShape:
    """What the buffers of replayed steps hold at most."""

    num_rows: int
    """Sequences."""
    max_context_tokens: int
    block_size: int
    scratch_block: int
    """A block of the pool for padding rows."""

    @property
    def max_blocks(self) -> int:
        """Width of the block tables."""
        return -(-self.max_context_tokens // self.block_size)


class StaticTables:
    """int32 [num_rows, max_blocks], and what the host has sent to them."""

    def __init__(
        self, shape: BufferShape, device: torch.device, *, padding_tokens: int = 1
    ) -> None:
        """`padding_tokens`: context of a row of padding, all of it in the scratch block."""
        self._scratch_block = shape.scratch_block
        self._device = device
        self._num_padded = -(-padding_tokens // shape.block_size)
        self._host = torch.zeros(shape.num_rows, shape.max_blocks, dtype=torch.int32)
        self._host[:, : self._num_padded] = shape.scratch_block
        self.tensor = self._host.to(device, copy=True)

    def fill(self, tables: torch.Tensor, num_rows: int) -> None:
        """`tables`, int32 [num_seqs, width] on the host, into the first of `num_rows`; pads the
        others. Returns before the device has them; the work of the current stream sees them."""
        num_seqs, width = tables.shape
        width = min(width, self._host.shape[1])  # spare columns of a batch are never read
        padded = self._num_padded
        host = self._host[:num_rows]
        is_padded = bool((host[num_seqs:, :padded] == self._scratch_block).all())
        if is_padded and torch.equal(host[:num_seqs, :width], tables[:, :width]):
            return
        host[:num_seqs, :width] = tables[:, :width]
        host[num_seqs:, :padded] = self._scratch_block
        # Rows behind are as they were; columns behind belong to longer sequences of before.
        width = max(width, padded)
        sent = staged(host[:, :width], self._device)
        self.tensor[:num_rows, :width].copy_(sent, non_blocking=True)
