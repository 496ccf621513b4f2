"""What differs between the GPUs that the kernels run on."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

_OLDEST = (8, 0)
_ADA = (8, 9)
_BLACKWELL = (10, 0)
_ROOMY_BYTES = 160 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of device."""

    capability: tuple[int, int]
    """CUDA compute capability."""
    shared_bytes: int
    """That one program may ask for."""

    @property
    def is_roomy(self) -> bool:
        """Whether the tiles of data center cards fit (A100: 163 KiB, H100 and B200: 227); on
        others (L40S, 4090, A10) a program has 99 KiB."""
        return self.shared_bytes >= _ROOMY_BYTES

    @property
    def has_tensor_memory(self) -> bool:
        """Blackwell keeps sums beside the registers, and more operands in shared memory."""
        return self.capability >= _BLACKWELL

    @property
    def is_supported(self) -> bool:
        """Whether the kernels' tiles fit and bfloat16 is there: Ampere and later."""
        return self.capability >= _OLDEST

    @property
    def has_fp8(self) -> bool:
        """Whether 8-bit floats can be converted and multiplied."""
        return self.capability >= _ADA


HOPPER = Gpu(capability=(9, 0), shared_bytes=227 * 1024)


@functools.cache
def gpu_of(device: torch.device) -> Gpu:
    """The device's kind; the interpreter plays a Hopper."""
    if device.type != "cuda":
        return HOPPER
    found: Any = torch.cuda.get_device_properties(device)
    return Gpu(
        capability=(found.major, found.minor), shared_bytes=found.shared_memory_per_block_optin
    )


def multiplies_fp8(device: torch.device) -> bool:
    """Whether kernels of this device take 8-bit floats as they are."""
    return device.type == "cuda" and gpu_of(device).has_fp8
