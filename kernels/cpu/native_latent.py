"""The AVX-512 kernels of multi-head latent attention; `kernels/reference/` says what each does."""

from __future__ import annotations

import ctypes

import torch

from kernels.cpu.native_kernels import CODES
from kernels.cpu.team import TEAM
from kernels.door import require_contiguous
from kernels.latent import LatentNorm, check_write_latent
from kernels.paged_queries import QUANTIZED_KV
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
