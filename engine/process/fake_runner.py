"""A model without weights: the next token is a function of the tokens that are in the KV pool.

It writes each token into the pool and reads the whole context back through the block table, so a
wrong block, a wrong slot or stale bytes change the result; `fake_logits` is what to expect, and of
prompts that are pooled the same with the other sign.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cluster.block_hash import pack_tokens
from cluster.kv_shape import KvShape
from engine.contract.messages import Loaded
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout
from engine.model.ragged_batch import RaggedBatch
from engine.runner.model_runner import Replica, copy_blocks

_BASE = 256
_SPREAD = 3.0
_SHAPE = KvShape(num_layers=2, num_planes=2, num_kv_heads=2, head_dim=8)


def fake_logits(token_ids: Sequence[int], vocab_size: int) -> torch.Tensor:
    """float32 [vocab_size]: fixed noise for this run of tokens."""
    key = int.from_bytes(pack_tokens(token_ids), "little") % (2**127 - 1) + len(token_ids)
    noise = np.random.Generator(np.random.Philox(key=key)).standard_normal(vocab_size)
    return torch.from_numpy((_SPREAD * noise).astype(np.float32))


class FakeRunner:
    """A ModelRunner over a real KV tensor. Token ids go up to 65535; head_dim is at least 2."""

    def __init__(self, kv: torch.Tensor, vocab_size: int) -> None:
        self._kv = kv  # [num_blocks, num_layers, num_planes, num_kv_heads, block_size, head_dim]
        self._vocab_size = vocab_size
        self.num_tokens = 0
        """Tokens computed since the start."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """See ModelRunner."""
        copy_blocks(self._kv, pairs)

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """See ModelRunner."""
        self.num_tokens += len(batch.token_ids)
        write_tokens(self._kv, batch.slots, batch.token_ids)
        starts = batch.query_starts.tolist()
        rows = []
        for row in batch.logit_rows.tolist():
            sequence = next(i for i, end in enumerate(starts[1:]) if row < end)
            length = int(batch.positions[row]) + 1
            context = read_tokens(self._kv, batch.block_tables[sequence], length)
            logits = fake_logits(context, self._vocab_size)
            rows.append(-logits if batch.is_pooled else logits)
        return torch.stack(rows) if rows else torch.empty(0, self._vocab_size)


def write_tokens(kv: torch.Tensor, slots: torch.Tensor, token_ids: torch.Tensor) -> None:
    """Puts each token, in two digits that bfloat16 holds exactly, into every layer and head."""
    block_size = kv.shape[4]
    digits = torch.stack((token_ids % _BASE, token_ids // _BASE), dim=-1) + 1  # [num_tokens, 2]
    target = kv[slots // block_size, :, :, :, slots % block_size]
    target[..., :2] = digits.to(kv.dtype)[:, None, None, None]
    kv[slots // block_size, :, :, :, slots % block_size] = target


def read_tokens(kv: torch.Tensor, block_table: torch.Tensor, length: int) -> list[int]:
    """The first `length` tokens that the blocks of a sequence hold."""
    digits = kv[block_table.long(), -1, -1, -1, :, :2].flatten(0, 1)[:length].long() - 1
    return [max(0, low) + _BASE * max(0, high) for low, high in digits.tolist()]


def fake_replica(
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    vocab_size: int = 512,
    eos_token_ids: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float32,
    shape: KvShape = _SHAPE,
    weights: WeightFormat = WeightFormat.FULL,
) -> Replica:
    """A loaded model, as far as an engine can tell."""
    layout = KvLayout(shape=shape, block_size=block_size, dtype=dtype)
    kv = torch.zeros((num_blocks, *layout.block_shape), dtype=dtype)
    return Replica(
        runner=FakeRunner(kv, vocab_size),
        loaded=Loaded(weights=weights),
        kv=kv,
        vocab_size=vocab_size,
        eos_token_ids=eos_token_ids,
        max_context_tokens=num_blocks * block_size,
        num_homes=1,
    )
