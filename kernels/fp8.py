"""Matrices as 8-bit floats (E4M3), quantized on load.

Source: Micikevicius et al., "FP8 formats for deep learning", 2022.
"""

from __future__ import annotations

import torch

from kernels.weights import Fp8Weight

E4M3_MAX = float(torch.finfo(torch.float8_e4m3fn).max)


def quantize_fp8(weight: torch.Tensor, *, dtype: torch.dtype) -> Fp8Weight:
    """[out, in], floating -> one scale per output, for activations of `dtype`.

    A normal value moves by at most 1/16 of itself; one under 2**-6 of the row's scale by 2**-10 of
    that. A row of zeros has a scale of 1.
    """
    rows = weight.float()
    scales = rows.abs().amax(1, keepdim=True) / E4M3_MAX
    scales = scales.masked_fill(scales == 0, 1.0)
    values = (rows / scales).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return Fp8Weight(values=values, scales=scales, block=(1, rows.shape[1]), dtype=dtype)
