"""The tensors of a step, checked, as the step record that the library reads."""

from __future__ import annotations

import operator

import torch

from kernels.cpu.native_form import KvRows
from kernels.cpu.native_kernels import KV_CODES, PLAIN_KV
from kernels.cpu.step_records import StepRecord
from kernels.door import require, require_contiguous, require_dtype, require_shape
from kernels.paged_queries import KV_SCALE_BYTES
from kernels.tape.recording import StepQueries


class StepInputs:
    """Fills one record, step after step. Tensors that the step before had too, the same objects,
    are known to be right."""

    def __init__(self, kv: KvRows, num_layers: int) -> None:
        self.record = StepRecord()
        self._kv, self._num_layers = kv, num_layers
        self._seen: tuple[torch.Tensor | None, ...] = ()
        self._pool: torch.Tensor | None = None

    def take(self, batch: StepQueries, kv: torch.Tensor) -> StepRecord:
        """The step's record, valid until the next one. Raises ValueError for a wrong shape or
        dtype."""
        self._take_batch(self.record, batch)
        self._take_pool(self.record, kv)
        return self.record

    def _take_batch(self, step: StepRecord, batch: StepQueries) -> None:
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
        self._take_adapters(step, batch)
        tables = batch.block_tables
        require_dtype("block_tables", tables, torch.int32)
        require_shape("block_tables", tables, (num_seqs, tables.shape[-1]))
        require_contiguous("block_tables", tables)
        step.block_tables, step.max_blocks = tables.data_ptr(), tables.shape[1]
        step.num_tokens, step.num_seqs = num_tokens, num_seqs
        step.num_logits = len(batch.logit_rows)

    def _take_adapters(self, step: StepRecord, batch: StepQueries) -> None:
        slots = batch.adapters
        if slots is not None:
            _require_vector("adapters", slots, torch.int32, len(batch.token_ids))
        step.adapters = None if slots is None else slots.data_ptr()

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


def _tensors(batch: StepQueries) -> tuple[torch.Tensor | None, ...]:
    return (
        batch.token_ids,
        batch.positions,
        batch.slots,
        batch.logit_rows,
        batch.query_starts,
        batch.context_lens,
        batch.block_tables,
        batch.adapters,
    )


def _require_vector(name: str, tensor: torch.Tensor, dtype: torch.dtype, size: int) -> None:
    require(
        tensor.dtype is dtype and tensor.shape == (size,) and tensor.is_contiguous(),
        f"{name} is {tensor.dtype} {tuple(tensor.shape)}; needed: {dtype} ({size},), contiguous",
    )
