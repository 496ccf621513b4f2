"""Bans the tokens that masks leave out, on whatever device the logits are;
`kernels/reference/mask_logits.py` is what it computes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.cpu.mask_logits import mask_logits as cpu_mask
from kernels.token_mask import TokenMask


def mask_logits(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[TokenMask]) -> None:
    """In place; masks are on the host. On a GPU it does not wait for the device."""
    if logits.is_cuda:
        from kernels.triton.mask_logits import mask_logits as triton_mask

        triton_mask(logits, rows, masks)
    else:
        cpu_mask(logits, rows, masks)
