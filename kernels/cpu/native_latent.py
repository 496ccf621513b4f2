"""The native kernels of multi-head latent attention; `kernels/reference/` says what each does."""

from __future__ import annotations

import ctypes

import torch

from kernels.cpu.latent_attention import latent_attention as torch_attention
from kernels.cpu.native_kernels import CODES, HEAD_DIM_STEP, KV_CODES, PLAIN_KV
from kernels.cpu.team import TEAM
from kernels.door import require_contiguous
from kernels.latent import LatentNorm, check_latent_attention, check_write_latent
from kernels.paged_queries import QUANTIZED_KV, PagedQueries
from kernels.reference.write_latent import write_latent as reference


class NativeLatent:
    """Bound to the library; each call runs on the team of `kernels/cpu/team.py`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def write_latent(
        self,
        query: torch.Tensor,
        latent: torch.Tensor,
        norm: LatentNorm,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        kv_layer: torch.Tensor,
    ) -> None:
        """See kernels/reference/write_latent.py, which does quantized pools here too."""
        if kv_layer.dtype in QUANTIZED_KV:
            reference(query, latent, norm, cos_sin, positions, slots, kv_layer)
            return
        rope_dim = check_write_latent(query, latent, norm, cos_sin, positions, slots, kv_layer)
        for name, tensor in (("query", query), ("cos_sin", cos_sin), ("norm", norm.weight)):
            require_contiguous(name, tensor)
        self._library.splitserve_write_latent(
            CODES[query.dtype],
            query.data_ptr(),
            latent.data_ptr(),
            latent.stride(0),
            norm.weight.data_ptr(),
            norm.eps,
            cos_sin.data_ptr(),
            positions.data_ptr(),
            slots.data_ptr(),
            kv_layer.data_ptr(),
            kv_layer.stride(0),
            latent.shape[0],
            query.shape[1],
            kv_layer.shape[3],
            norm.weight.shape[0],
            rope_dim,
            TEAM.num_threads,
        )

    def latent_attention(
        self,
        query: torch.Tensor,
        kv_layer: torch.Tensor,
        queries: PagedQueries,
        scale: float,
        value_dim: int,
    ) -> torch.Tensor:
        """See kernels/reference/latent_attention.py."""
        num_tokens, num_heads, row_dim = query.shape
        if row_dim % HEAD_DIM_STEP or scale <= 0:
            return torch_attention(query, kv_layer, queries, scale, value_dim)
        check_latent_attention(query, kv_layer, queries, value_dim)
        require_contiguous("query", query)
        require_contiguous("block_tables", queries.block_tables)
        out = torch.empty((num_tokens, num_heads * value_dim), dtype=query.dtype)
        self._library.splitserve_latent_attention(
            CODES[query.dtype],
            KV_CODES.get(kv_layer.dtype, PLAIN_KV),
            query.data_ptr(),
            kv_layer.data_ptr(),
            kv_layer.stride(0),
            queries.query_starts.data_ptr(),
            queries.context_lens.data_ptr(),
            queries.block_tables.data_ptr(),
            queries.block_tables.shape[1],
            queries.context_lens.shape[0],
            num_heads,
            kv_layer.shape[3],
            row_dim,
            value_dim,
            scale,
            out.data_ptr(),
            TEAM.num_threads,
        )
        return out
