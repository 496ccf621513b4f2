"""A decoder's forward in one call of the AVX-512 library.

`kernels/cpu/tape.py` records a program when a model is loaded; here it runs, once per step. The
kernels are those that an operation-by-operation forward calls, on the same numbers: the bits are
the same. Activations live in a workspace that grows to the largest step and is kept.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from kernels.cpu.native_kernels import KV_CODES, PLAIN_KV
from kernels.cpu.step_records import (
    LOGITS,
    ActivationsEntry,
    OperationEntry,
    OperationRecord,
    ProgramRecord,
    StepRecord,
)
from kernels.cpu.stretches import local_places
from kernels.cpu.team import TEAM
from kernels.door import require, require_contiguous, require_dtype, require_shape
from kernels.paged_queries import KV_SCALE_BYTES, PagedQueries

_LEAST_ROWS: Final = 64


class StepQueries(PagedQueries, Protocol):
    """The tensors of a step; `engine.model.ragged_batch.RaggedBatch` is one. All are contiguous."""

    @property
    def token_ids(self) -> torch.Tensor: ...  # int64 [num_tokens]

    @property
    def positions(self) -> torch.Tensor: ...  # int64 [num_tokens]

    @property
    def slots(self) -> torch.Tensor: ...  # int64 [num_tokens]

    @property
    def logit_rows(self) -> torch.Tensor: ...  # int64 [num_logits]


@dataclass(frozen=True, slots=True)
class KvRows:
    """What a program asks of a pool: keys and values, [.., 2, num_kv_heads, .., head_dim]."""

    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    """Of a plain pool; a quantized one is taken too."""


class StepProgram:
    """Runs on the team of `kernels/cpu/team.py`; one step at a time."""

    def __init__(
        self,
        library: ctypes.CDLL,
        records: Sequence[OperationRecord],
        *,
        row_bytes: Sequence[int],
        kv: KvRows,
        num_layers: int,
        vocab_size: int,
        kept: Sequence[object],
    ) -> None:
        """`row_bytes` is of each place; `kept` owns what the records point to."""
        self._run = library.splitserve_run_program
        self._kv, self._num_layers, self._vocab_size = kv, num_layers, vocab_size
        operations = (OperationEntry * len(records))(*(_entry(library, r) for r in records))
        local = local_places(records)
        places = (ActivationsEntry * len(row_bytes))(
            *(ActivationsEntry(width, place in local) for place, width in enumerate(row_bytes))
        )
        self._program = ProgramRecord(
            operations=ctypes.addressof(operations),
            num_operations=len(records),
            places=ctypes.addressof(places),
            num_places=len(row_bytes),
        )
        self._kept = (operations, places, list(records), list(kept))
        self._bytes_per_row = sum(row_bytes) - row_bytes[LOGITS]
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._capacity_rows = 0
        self._step = StepRecord()
        self._seen: tuple[torch.Tensor, ...] = ()
        self._pool: torch.Tensor | None = None

    @property
    def workspace_bytes(self) -> int:
        """Memory held for activations."""
        return self._workspace.nbytes

    def __call__(self, batch: StepQueries, kv: torch.Tensor) -> torch.Tensor:
        """Writes the batch's KV into the pool; returns logits, float32 [num_logits, vocab_size].

        kv  [num_blocks, num_layers, 2, num_kv_heads, block_size, row_width], plain or quantized

        Block tables, slots and positions are trusted. Raises ValueError for tensors of a wrong
        shape or dtype, IndexError for a token that the embedding does not have.
        """
        step = self._step
        self._take_batch(step, batch)
        self._take_pool(step, kv)
        self._fit(max(step.num_tokens, step.num_logits))
        logits = torch.empty((step.num_logits, self._vocab_size), dtype=torch.float32)
        step.logits = logits.data_ptr()
        step.num_threads = TEAM.num_threads
        self._run(ctypes.addressof(self._program), ctypes.addressof(step))
        if step.num_unknown_tokens:
            raise IndexError(f"{step.num_unknown_tokens} token ids are not in the vocabulary")
        return logits

    def _take_batch(self, step: StepRecord, batch: StepQueries) -> None:
        """Tensors that the step before had too, the same objects, are known to be right."""
        tensors = _tensors(batch)
        if len(self._seen) == len(tensors) and all(map(operator.is_, self._seen, tensors)):
            return
        self._seen = ()
        self._check_batch(step, batch)
        self._seen = tensors

    def _check_batch(self, step: StepRecord, batch: StepQueries) -> None:
        num_tokens, num_seqs = len(batch.token_ids), len(batch.context_lens)
        for name, dtype, size in (
            ("token_ids", torch.int64, num_tokens),
            ("positions", torch.int64, num_tokens),
            ("slots", torch.int64, num_tokens),
            ("logit_rows", torch.int64, len(batch.logit_rows)),
            ("query_starts", torch.int32, num_seqs + 1),
            ("context_lens", torch.int32, num_seqs),
        ):
            tensor: torch.Tensor = getattr(batch, name)
            _require_vector(name, tensor, dtype, size)
            setattr(step, name, tensor.data_ptr())
        tables = batch.block_tables
        require_dtype("block_tables", tables, torch.int32)
        require_shape("block_tables", tables, (num_seqs, tables.shape[-1]))
        require_contiguous("block_tables", tables)
        step.block_tables, step.max_blocks = tables.data_ptr(), tables.shape[1]
        step.num_tokens, step.num_seqs = num_tokens, num_seqs
        step.num_logits = len(batch.logit_rows)

    def _take_pool(self, step: StepRecord, kv: torch.Tensor) -> None:
        if self._pool is not kv:
            self._pool = None
            self._check_pool(step, kv)
            self._pool = kv

    def _check_pool(self, step: StepRecord, kv: torch.Tensor) -> None:
        rows, shape = self._kv, kv.shape
        require_dtype("kv", kv, rows.dtype, *KV_CODES)
        width = rows.head_dim + (KV_SCALE_BYTES if kv.dtype in KV_CODES else 0)
        fits = kv.dim() == 6 and shape[1] >= self._num_layers and kv.is_contiguous()
        if not fits or (shape[2], shape[3], shape[5]) != (2, rows.num_kv_heads, width):
            raise ValueError(f"a pool of shape {tuple(shape)} for {self._num_layers} x {rows}")
        step.kv, step.kv_block_size = kv.data_ptr(), shape[4]
        step.kv_dtype = KV_CODES.get(kv.dtype, PLAIN_KV)
        step.kv_block_stride = kv.stride(0)
        step.kv_layer_stride = kv.stride(1) * kv.itemsize

    def _fit(self, num_rows: int) -> None:
        """Powers of two: few different sizes, and every place stays aligned to a cache line."""
        if num_rows > self._capacity_rows:
            self._capacity_rows = max(_LEAST_ROWS, 1 << (num_rows - 1).bit_length())
            num_bytes = self._capacity_rows * self._bytes_per_row
            self._workspace = torch.empty(num_bytes, dtype=torch.uint8)
            self._step.workspace = self._workspace.data_ptr()
            self._step.capacity_rows = self._capacity_rows


def _entry(library: ctypes.CDLL, record: OperationRecord) -> OperationEntry:
    function = ctypes.cast(getattr(library, record.function), ctypes.c_void_p)
    return OperationEntry(function.value, ctypes.addressof(record), record.by_rows)


def _tensors(batch: StepQueries) -> tuple[torch.Tensor, ...]:
    return (
        batch.token_ids,
        batch.positions,
        batch.slots,
        batch.logit_rows,
        batch.query_starts,
        batch.context_lens,
        batch.block_tables,
    )


def _require_vector(name: str, tensor: torch.Tensor, dtype: torch.dtype, size: int) -> None:
    require(
        tensor.dtype is dtype and tensor.shape == (size,) and tensor.is_contiguous(),
        f"{name} is {tensor.dtype} {tuple(tensor.shape)}; needed: {dtype} ({size},), contiguous",
    )
