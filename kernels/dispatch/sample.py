"""One token per row, on whatever device the logits are; `kernels/reference/sample.py` is what it
computes."""

from __future__ import annotations

import torch

from kernels.cpu.sample import sample as cpu_sample
from kernels.reference.sample import Draws


def sample(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """See kernels/reference/sample.py. On a GPU it does not wait for the device."""
    if logits.is_cuda:
        from kernels.triton.sample import sample as triton_sample

        return triton_sample(logits, draws)
    return cpu_sample(logits, draws)
