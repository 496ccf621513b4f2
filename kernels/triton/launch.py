"""What all launches share."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch
import triton


def next_power_of_2(count: int) -> int:
    """Tile sizes are powers of two; what is over is masked."""
    return int(triton.next_power_of_2(count))


def on_device_of(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Kernels run on the current device; the interpreter knows none."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()
