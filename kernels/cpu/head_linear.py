"""One matrix per head by the native library, each in the panels of `packed_linear`."""

from __future__ import annotations

import ctypes

import torch

from kernels.cpu.native_kernels import CODES
from kernels.cpu.packed_linear import pack
from kernels.cpu.team import TEAM
from kernels.door import require, require_dtype
from kernels.latent import HeadLinear
from kernels.reference.head_linear import TorchHeadLinear, check_head_linear


def pack_heads(library: ctypes.CDLL, weight: torch.Tensor) -> HeadLinear:
    """Rows of an odd number of bfloat16 values do not make words: torch multiplies them."""
    per_word = 4 // weight.dtype.itemsize
    if weight.shape[-1] % per_word:
        return TorchHeadLinear(weight)
    return PackedHeadLinear(library, weight)


class PackedHeadLinear:
    """A `kernels.latent.HeadLinear`."""

    def __init__(self, library: ctypes.CDLL, weight: torch.Tensor) -> None:
        require(weight.dim() == 3, f"weight has {weight.dim()} dimensions; needed: 3")
        require_dtype("weight", weight, *CODES)
        self._library = library
        self._dtype, self._code = weight.dtype, CODES[weight.dtype]
        self._per_word = 4 // weight.dtype.itemsize
        self._num_heads, self._num_outputs, self._num_inputs = weight.shape
        self._panels = torch.stack([pack(matrix) for matrix in weight])

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._panels.nbytes

    def __call__(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """See HeadLinear."""
        check_head_linear(x, out, (self._num_heads, self._num_outputs, self._num_inputs))
        require_dtype("x", x, self._dtype)
        if any(stride % self._per_word for stride in (*x.stride()[:2], x.storage_offset())):
            x = x.contiguous()
        self._library.splitserve_head_linear(
            self._code,
            x.data_ptr(),
            x.stride(0) // self._per_word,
            x.stride(1) // self._per_word,
            x.shape[0],
            self._num_heads,
            self._num_inputs // self._per_word,
            self._panels.data_ptr(),
            self._num_outputs,
            out.data_ptr(),
            out.stride(0),
            out.stride(1),
            TEAM.num_threads,
        )
