"""What this machine allows, measured in the run that is judged by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cluster.home import kernels_folder
from kernels.dispatch.kernel_sets import kernels_for

READ_BYTES = 384 << 20
MATRIX = 2048


@dataclass(frozen=True, slots=True)
class CpuFloor:
    """Rates with the current number of threads."""

    read_bytes_per_s: float
    bf16_flops_per_s: float

    def __str__(self) -> str:
        return (
            f"memory {self.read_bytes_per_s / 1e9:.1f} GB/s, "
            f"matrix product {self.bf16_flops_per_s / 1e9:.0f} GFLOP/s"
        )

    def best_with(self, other: CpuFloor) -> CpuFloor:
        """The higher of both rates: interference only ever slows a machine down."""
        return CpuFloor(
            max(self.read_bytes_per_s, other.read_bytes_per_s),
            max(self.bf16_flops_per_s, other.bf16_flops_per_s),
        )

    def read_ms(self, num_bytes: float) -> float:
        """Time to bring `num_bytes` from memory once."""
        return num_bytes / self.read_bytes_per_s * 1e3

    def compute_ms(self, flops: float) -> float:
        """Time of a perfect matrix product of that many operations (a multiply-add is two)."""
        return flops / self.bf16_flops_per_s * 1e3


def measure_floor(repeats: int = 7) -> CpuFloor:
    """The best of `repeats`."""
    words = torch.ones(READ_BYTES // 4)
    x = torch.randn(MATRIX, MATRIX).bfloat16()
    weight = torch.randn(MATRIX, MATRIX).bfloat16()
    kernels = kernels_for(torch.device("cpu"), kernels_folder())
    ours = kernels.pack_linear(weight)
    streamed = kernels.pack_linear(torch.ones(READ_BYTES // 2 // MATRIX, MATRIX).bfloat16())
    read_s = min(best_of(words.sum, repeats), best_of(lambda: streamed(x[:1]), repeats))
    wide, wide_weight = x.float(), weight.float()  # what multiplies where bfloat16 is emulated
    products = (lambda: x @ weight.T, lambda: wide @ wide_weight.T, lambda: ours(x))
    multiply_s = min(best_of(product, repeats) for product in products)
    return CpuFloor(READ_BYTES / read_s, 2.0 * MATRIX**3 / multiply_s)


def best_of(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest call, after one that is not counted."""
    work()
    return min(_timed(work) for _ in range(repeats))


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
