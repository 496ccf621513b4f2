"""The native kernels as functions of tensors; `kernels/reference/` says what each does.

One row's result does not depend on the other rows of a batch, to the bit.
"""

from __future__ import annotations

import ctypes
from typing import Final

import torch

from kernels.cpu.team import TEAM
from kernels.cpu.torch_attention import paged_attention as torch_attention
from kernels.door import require_contiguous, require_dtype, require_shape
from kernels.gated_mul import GateActivation, gated_width
from kernels.paged_queries import PagedQueries, check_attention
from kernels.reference.head_norm import check_head_norm
from kernels.reference.rope_write_kv import check_rope_write_kv

CODES: Final = {torch.float32: 0, torch.bfloat16: 1}
KV_CODES: Final = {torch.int8: 1, torch.float8_e4m3fn: 2}
ACTIVATION_CODES: Final = {GateActivation.SILU: 0, GateActivation.GELU_TANH: 1}
PLAIN_KV: Final = 0
"""A pool in the dtype of the activations."""
NO_WINDOW: Final = 0
HEAD_DIM_STEP: Final = 2
"""Attention takes head sizes that are multiples of this; others go to torch."""


class NativeKernels:
    """Bound to the library; each call runs on the team of `kernels/cpu/team.py`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def rms_norm(
        self, residual: torch.Tensor, weight: torch.Tensor, eps: float, out_dtype: torch.dtype
    ) -> torch.Tensor:
        """See kernels/reference/rms_norm.py."""
        out = torch.empty(residual.shape, dtype=out_dtype)
        self._norm(None, residual, weight, eps, out)
        return out

    def add_rms_norm(
        self, branch: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """See kernels/reference/rms_norm.py."""
        require_shape("branch", branch, tuple(residual.shape))
        require_contiguous("branch", branch)
        out = torch.empty_like(branch)
        self._norm(branch, residual, weight, eps, out)
        return out

    def _norm(
        self,
        branch: torch.Tensor | None,
        residual: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        out: torch.Tensor,
    ) -> None:
        num_rows, hidden = residual.shape
        require_contiguous("residual", residual)
        require_dtype("residual", residual, torch.float32)
        require_dtype("weight", weight, torch.float32)
        require_shape("weight", weight, (hidden,))
        self._library.splitserve_rms_norm(
            CODES[out.dtype],
            None if branch is None else branch.data_ptr(),
            residual.data_ptr(),
            weight.data_ptr(),
            eps,
            num_rows,
            hidden,
            out.data_ptr(),
            TEAM.num_threads,
        )

    def gated_mul(self, gate_up: torch.Tensor, activation: GateActivation) -> torch.Tensor:
        """See kernels/reference/gated_mul.py."""
        num_rows, width = gate_up.shape
        inner = gated_width(width)
        require_contiguous("gate_up", gate_up)
        out = torch.empty((num_rows, inner), dtype=gate_up.dtype)
        self._library.splitserve_gated_mul(
            ACTIVATION_CODES[activation],
            CODES[gate_up.dtype],
            gate_up.data_ptr(),
            num_rows,
            inner,
            out.data_ptr(),
            TEAM.num_threads,
        )
        return out

    def head_norm(
        self,
        qkv: torch.Tensor,
        query_weight: torch.Tensor,
        key_weight: torch.Tensor,
        eps: float,
        num_heads: int,
        num_kv_heads: int,
    ) -> None:
        """See kernels/reference/head_norm.py."""
        head_dim = check_head_norm(qkv, query_weight, key_weight, num_heads, num_kv_heads)
        require_contiguous("qkv", qkv)
        require_contiguous("query_weight", query_weight)
        require_contiguous("key_weight", key_weight)
        self._library.splitserve_head_norm(
            CODES[qkv.dtype],
            qkv.data_ptr(),
            query_weight.data_ptr(),
            key_weight.data_ptr(),
            eps,
            qkv.shape[0],
            num_heads,
            num_kv_heads,
            head_dim,
            TEAM.num_threads,
        )

    def rope_write_kv(
        self,
        qkv: torch.Tensor,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        kv_layer: torch.Tensor,
    ) -> torch.Tensor:
        """See kernels/reference/rope_write_kv.py. The result is a view of `qkv`."""
        num_heads = check_rope_write_kv(qkv, cos_sin, positions, slots, kv_layer)
        require_contiguous("qkv", qkv)
        require_contiguous("cos_sin", cos_sin)
        num_tokens, width = qkv.shape
        _, _, num_kv_heads, block_size, _ = kv_layer.shape
        head_dim = width // (num_heads + 2 * num_kv_heads)
        self._library.splitserve_rope_write_kv(
            CODES[qkv.dtype],
            KV_CODES.get(kv_layer.dtype, PLAIN_KV),
            qkv.data_ptr(),
            cos_sin.data_ptr(),
            positions.data_ptr(),
            slots.data_ptr(),
            kv_layer.data_ptr(),
            kv_layer.stride(0),
            qkv.shape[0],
            num_heads,
            num_kv_heads,
            block_size,
            head_dim,
            TEAM.num_threads,
        )
        return qkv.as_strided((num_tokens, num_heads, head_dim), (width, head_dim, 1))

    def paged_attention(
        self,
        query: torch.Tensor,
        kv_layer: torch.Tensor,
        queries: PagedQueries,
        scale: float,
        window: int | None = None,
    ) -> torch.Tensor:
        """See kernels/reference/paged_attention.py. Rows of `query` may be strided."""
        num_tokens, num_heads, head_dim = query.shape
        if head_dim % HEAD_DIM_STEP or scale <= 0:
            return torch_attention(query, kv_layer, queries, scale, window)
        check_attention(query, kv_layer, queries, window)
        _, _, num_kv_heads, block_size, _ = kv_layer.shape
        if query.stride()[1:] != (head_dim, 1):
            raise ValueError(f"heads of query have strides {query.stride()}; needed: dense rows")
        require_contiguous("block_tables", queries.block_tables)
        out = torch.empty((num_tokens, num_heads * head_dim), dtype=query.dtype)
        self._library.splitserve_paged_attention(
            CODES[query.dtype],
            KV_CODES.get(kv_layer.dtype, PLAIN_KV),
            query.data_ptr(),
            query.stride(0),
            kv_layer.data_ptr(),
            kv_layer.stride(0),
            queries.query_starts.data_ptr(),
            queries.context_lens.data_ptr(),
            queries.block_tables.data_ptr(),
            queries.block_tables.shape[1],
            queries.context_lens.shape[0],
            num_heads,
            num_kv_heads,
            block_size,
            head_dim,
            scale,
            NO_WINDOW if window is None else window,
            out.data_ptr(),
            TEAM.num_threads,
        )
        return out
