"""A step's plan on its way to the ranks: numbers only, in one fixed layout.

    counts, int64 [10]                    num_tokens, num_seqs, width of tables, num_logits,
                                          num_slots, num_copies, num_decodes, max_query_len,
                                          max_context_len, is_pooled
    int64    token_ids, positions, slots, logit_rows, copies [num_copies, 2]
    int32    query_starts, context_lens, block_tables [num_seqs, width],
             adapters [num_slots]: as many as tokens, or none

All of it in the machine's own byte order: ranks of one group have one kind of processor.

All ranks wait until the slowest one has read it. While a group decodes, both ends therefore know
the tensors of the step before again: code of numpy and torch takes long where weights have driven
it out of the caches.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from cluster.errors import InternalError
from engine.model.ragged_batch import RaggedBatch
from ranks.plans.plan import Part

_COUNTS = struct.Struct("=10q")
_Sizes = tuple[int, int, int, int, int]
"""num_tokens, num_seqs, width of tables, num_logits, num_slots"""
_NOTHING: _Sizes = (0, 0, 0, 0, 0)
BlockCopies = Sequence[tuple[int, int]]
"""(source, target), as ModelRunner's."""


class StepWriter:
    """The conductor's end."""

    def __init__(self) -> None:
        self._seen: tuple[torch.Tensor, ...] = ()
        self._sizes = _NOTHING
        self._long_words: list[memoryview] = []
        self._words: list[memoryview] = []

    def write(self, batch: RaggedBatch, copies: BlockCopies) -> list[Part]:
        """The parts of a message, as long as the batch's numbers stay; it is on the host."""
        self._look_at(batch)
        counts = _COUNTS.pack(
            *self._sizes,
            len(copies),
            batch.num_decodes,
            batch.max_query_len,
            batch.max_context_len,
            batch.is_pooled,
        )
        copied = np.asarray(copies, dtype=np.int64).tobytes() if copies else b""
        return [counts, *self._long_words, copied, *self._words]

    def _look_at(self, batch: RaggedBatch) -> None:
        """Nothing to do for tensors that the step before had too, the same objects."""
        long_words = (batch.token_ids, batch.positions, batch.slots, batch.logit_rows)
        words = [batch.query_starts, batch.context_lens, batch.block_tables]
        if batch.adapters is not None:
            words.append(batch.adapters)
        tensors = (*long_words, *words)
        if len(self._seen) == len(tensors) and all(map(operator.is_, self._seen, tensors)):
            return
        self._seen, self._sizes = (), _sizes_of(batch)
        self._long_words = [_memory_of(tensor, torch.int64) for tensor in long_words]
        self._words = [_memory_of(tensor, torch.int32) for tensor in words]
        if all(tensor.is_contiguous() for tensor in tensors):
            self._seen = tensors


class StepReader:
    """A rank's end."""

    def __init__(self) -> None:
        self._memory: object = None
        self._shape = _Shape(*_NOTHING, 0)
        self._num_bytes = 0
        self._views: _Views | None = None

    def read(self, body: memoryview) -> tuple[RaggedBatch, list[tuple[int, int]]]:
        """The batch's tensors are views of `body`: of use as long as nobody writes to it. They are
        those of the step before where `body` is the same memory, see RankPlan, in the same shape.

        Raises InternalError for a body of another length than its counts say.
        """
        if len(body) < _COUNTS.size:
            raise InternalError(
                f"a step's plan of {len(body)} bytes; needed: {_COUNTS.size} or more"
            )
        counts = _COUNTS.unpack_from(body)
        views = self._views
        if (
            views is None
            or counts[:6] != self._shape
            or len(body) != self._num_bytes
            or body.obj is not self._memory
        ):
            views = self._look_at(body, counts)
        *_, num_copies, num_decodes, longest, context, is_pooled = counts
        batch = RaggedBatch(
            token_ids=views.token_ids,
            positions=views.positions,
            slots=views.slots,
            query_starts=views.query_starts,
            context_lens=views.context_lens,
            block_tables=views.block_tables,
            logit_rows=views.logit_rows,
            num_decodes=num_decodes,
            max_query_len=longest,
            max_context_len=context,
            adapters=views.adapters,
            is_pooled=bool(is_pooled),
        )
        return batch, _pairs_of(views.copies) if num_copies else []

    def _look_at(self, body: memoryview, counts: tuple[int, ...]) -> _Views:
        shape = _Shape(*counts[:6])
        if min(counts) < 0 or len(body) != shape.num_bytes:
            raise InternalError(f"a step's plan of {len(body)} bytes, which says {counts}")
        self._views = _views_of(body, shape)
        self._memory, self._shape, self._num_bytes = body.obj, shape, len(body)
        return self._views


class _Shape(NamedTuple):
    """As the counts say."""

    num_tokens: int
    num_seqs: int
    width: int
    num_logits: int
    num_slots: int
    num_copies: int

    @property
    def num_long(self) -> int:
        """Numbers of 64 bits."""
        return 3 * self.num_tokens + self.num_logits + 2 * self.num_copies

    @property
    def num_short(self) -> int:
        """Numbers of 32 bits."""
        return 2 * self.num_seqs + 1 + self.num_seqs * self.width + self.num_slots

    @property
    def num_bytes(self) -> int:
        """Of a message."""
        return _COUNTS.size + 8 * self.num_long + 4 * self.num_short


class _Views(NamedTuple):
    """Of a message: the tensors of a RaggedBatch, and the copies."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    logit_rows: torch.Tensor
    copies: torch.Tensor
    query_starts: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    adapters: torch.Tensor | None


def _sizes_of(batch: RaggedBatch) -> _Sizes:
    num_seqs, width = batch.block_tables.shape
    num_slots = 0 if batch.adapters is None else len(batch.adapters)
    return len(batch.token_ids), num_seqs, width, len(batch.logit_rows), num_slots


def _views_of(body: memoryview, shape: _Shape) -> _Views:
    longs = np.frombuffer(body, np.int64, count=shape.num_long, offset=_COUNTS.size)
    after = _COUNTS.size + longs.nbytes
    shorts = np.frombuffer(body, np.int32, count=shape.num_short, offset=after)
    num_tokens, num_seqs, width, num_logits, num_slots, num_copies = shape
    token_ids, positions, slots, logit_rows, copies = torch.split_with_sizes(
        torch.from_numpy(longs), (num_tokens, num_tokens, num_tokens, num_logits, 2 * num_copies)
    )
    starts, contexts, tables, adapters = torch.split_with_sizes(
        torch.from_numpy(shorts), (num_seqs + 1, num_seqs, num_seqs * width, num_slots)
    )
    return _Views(
        *(token_ids, positions, slots, logit_rows, copies, starts, contexts),
        tables.view(num_seqs, width),
        adapters if num_slots else None,
    )


def _pairs_of(copies: torch.Tensor) -> list[tuple[int, int]]:
    return [(source, target) for source, target in copies.view(-1, 2).tolist()]


def _memory_of(tensor: torch.Tensor, dtype: torch.dtype) -> memoryview:
    if tensor.dtype is not dtype:
        raise ValueError(f"a plan's numbers are {tensor.dtype}; needed: {dtype}")
    buffer: Any = tensor.contiguous().numpy()
    return memoryview(buffer)
