"""Where Triton kernels are tested: the interpreter on every machine, and the GPU by itself."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch.kernel_sets import triton_set
from kernels.tape.kernel_set import KernelSet

_HAS_GPU = torch.cuda.is_available()

PLACES = [
    pytest.param(("cpu", torch.float32), id="interpreter-float32"),
    pytest.param(("cpu", torch.float16), id="interpreter-float16"),
    *(
        pytest.param(
            ("cuda", dtype),
            id=f"gpu-{str(dtype).removeprefix('torch.')}",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not _HAS_GPU, reason="no CUDA device")],
        )
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    ),
]
"""(device, dtype). The interpreter computes in numpy, which has no bfloat16."""

DEVICES = [
    pytest.param("cpu", id="interpreter"),
    pytest.param(
        "cuda",
        id="gpu",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not _HAS_GPU, reason="no CUDA device")],
    ),
]
"""For kernels of one dtype."""

Place = tuple[str, torch.dtype]


def kernels() -> KernelSet:
    """The set under test."""
    return triton_set()
