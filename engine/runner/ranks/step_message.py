"""A step's plan on its way to the ranks: numbers only, in one fixed layout.

    counts, int64 [8]                     num_tokens, num_seqs, width of tables, num_logits,
                                          num_decodes, max_query_len, max_context_len, num_copies
    int64    token_ids, positions, slots, logit_rows, copies [num_copies, 2]
    int32    query_starts, context_lens, block_tables [num_seqs, width]

All of it in the machine's own byte order: ranks of one group have one kind of processor.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import torch

from cluster.errors import InternalError
from engine.model.ragged_batch import RaggedBatch
from ranks.plans.plan import Part

_COUNTS = struct.Struct("=8q")
BlockCopies = Sequence[tuple[int, int]]
"""(source, target), as ModelRunner's."""


def write_step(batch: RaggedBatch, copies: BlockCopies) -> list[Part]:
    """The parts of a message; `batch` is on the host."""
    num_seqs, width = batch.block_tables.shape
    counts = _COUNTS.pack(
        len(batch.token_ids),
        num_seqs,
        width,
        len(batch.logit_rows),
        batch.num_decodes,
        batch.max_query_len,
        batch.max_context_len,
        len(copies),
    )
    long_words = (batch.token_ids, batch.positions, batch.slots, batch.logit_rows)
    words = (batch.query_starts, batch.context_lens, batch.block_tables)
    return [
        counts,
        *(_bytes_of(tensor, torch.int64) for tensor in long_words),
        np.asarray(copies, dtype=np.int64).tobytes(),
        *(_bytes_of(tensor, torch.int32) for tensor in words),
    ]


def read_step(body: memoryview) -> tuple[RaggedBatch, list[tuple[int, int]]]:
    """The batch's tensors are views of `body`: of use as long as nobody writes to it.

    Raises InternalError for a body of another length than its counts say.
    """
    if len(body) < _COUNTS.size:
        raise InternalError(f"a step's plan of {len(body)} bytes; needed: {_COUNTS.size} or more")
    counts = _COUNTS.unpack_from(body)
    num_tokens, num_seqs, width, num_logits, num_decodes, longest, context, num_copies = counts
    num_long = 3 * num_tokens + num_logits + 2 * num_copies
    num_short = 2 * num_seqs + 1 + num_seqs * width
    if min(counts) < 0 or len(body) != _COUNTS.size + 8 * num_long + 4 * num_short:
        raise InternalError(f"a step's plan of {len(body)} bytes, which says {counts}")
    longs = np.frombuffer(body, np.int64, count=num_long, offset=_COUNTS.size)
    shorts = np.frombuffer(body, np.int32, count=num_short, offset=_COUNTS.size + 8 * num_long)
    long_words = torch.split_with_sizes(
        torch.from_numpy(longs), (num_tokens, num_tokens, num_tokens, num_logits, 2 * num_copies)
    )
    words = torch.split_with_sizes(
        torch.from_numpy(shorts), (num_seqs + 1, num_seqs, num_seqs * width)
    )
    batch = RaggedBatch(
        token_ids=long_words[0],
        positions=long_words[1],
        slots=long_words[2],
        query_starts=words[0],
        context_lens=words[1],
        block_tables=words[2].view(num_seqs, width),
        logit_rows=long_words[3],
        num_decodes=num_decodes,
        max_query_len=longest,
        max_context_len=context,
    )
    return batch, [(source, target) for source, target in long_words[4].view(-1, 2).tolist()]


def _bytes_of(tensor: torch.Tensor, dtype: torch.dtype) -> bytes:
    if tensor.dtype is not dtype:
        raise ValueError(f"a plan's numbers are {tensor.dtype}; needed: {dtype}")
    return tensor.numpy().tobytes()
