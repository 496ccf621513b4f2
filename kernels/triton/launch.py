"""What all launches share."""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager

import torch
import triton

_INTERPRETED_PROCESSORS = 2
"""Few, so that each program of a persistent kernel has several items of work."""


def next_power_of_2(count: int) -> int:
    """Tile sizes are powers of two; what is over is masked."""
    return int(triton.next_power_of_2(count))


def on_device_of(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Kernels run on the current device; the interpreter knows none."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


@functools.cache
def num_processors(device: torch.device) -> int:
    """Streaming multiprocessors: how many programs can be resident is a multiple of it."""
    if device.type != "cuda":
        return _INTERPRETED_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
