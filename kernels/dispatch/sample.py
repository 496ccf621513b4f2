"""One token per row, on whatever device the logits are; `kernels/reference/sample.py` is what it
computes."""

from __future__ import annotations

import torch

from kernels.reference.sample import Draws
from kernels.reference.sample import sample as reference_sample


def sample(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """See kernels/reference/sample.py. On a GPU it does not wait for the device."""
    if logits.is_cuda:
        from kernels.triton.sample import sample as triton_sample

        return triton_sample(logits, draws)
    return reference_sample(logits, draws)
