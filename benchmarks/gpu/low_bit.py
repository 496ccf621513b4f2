"""Products with weights of 4 and 8 bits on a GPU, and with plain ones: few rows beside the bytes of
the weights (goal 80 % of the copy bandwidth), many beside the rate of a large matrix product."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.gpu.timing import GpuFloor, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.dispatch.kernel_sets import triton_set
from kernels.fp8 import quantize_fp8
from kernels.linear import Linear
from kernels.quantize import quantize_groups
from kernels.weights import Fp8Weight, Weight

PART = 0.8
FEW, MANY = (1, 8, 16, 32, 64), (256, 512, 1024, 2048, 8192)
SHAPES = {"QKV": (6144, 4096), "gate and up": (28672, 4096), "down": (4096, 14336)}
"""[out, in] of Llama 3 8B."""
BF16 = torch.bfloat16


def fp8_blocks(plain: torch.Tensor) -> Weight:
    """Scales per 128 x 128, as DeepSeek-V3 stores them."""
    outputs, inputs = plain.shape
    blocks = plain.float().view(outputs // 128, 128, inputs // 128, 128)
    scales = blocks.abs().amax((1, 3)) / 448
    values = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return Fp8Weight(
        values=values.view(outputs, inputs), scales=scales, block=(128, 128), dtype=BF16
    )


KINDS: dict[str, Callable[[torch.Tensor], Weight]] = {
    "bf16": lambda plain: plain,
    "int4 by 32": lambda plain: quantize_groups(plain, bits=4, group=32, dtype=BF16),
    "int4 by 128": lambda plain: quantize_groups(plain, bits=4, group=128, dtype=BF16),
    "int8 by 128": lambda plain: quantize_groups(plain, bits=8, group=128, dtype=BF16),
    "fp8 by output": lambda plain: quantize_fp8(plain, dtype=BF16),
    "fp8 by block": fp8_blocks,
}


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    table = []
    for place, shape in SHAPES.items():
        for kind in KINDS:
            copies = matrices(kind, shape)
            table += [few_row(f"{place}, {kind}", copies, n, shape[1], floor) for n in FEW]
            table += [many_row(f"{place}, {kind}", copies[0], n, shape, floor) for n in MANY]
            del copies
            torch.cuda.empty_cache()
    return table


def matrices(kind: str, shape: tuple[int, int]) -> list[Linear]:
    """Enough of them that each is cold when its turn comes."""
    pack, make = triton_set().pack_linear, KINDS[kind]
    first = pack(make(random_matrix(shape)))
    rest = num_copies(first.num_bytes) - 1
    return [first, *(pack(make(random_matrix(shape))) for _ in range(rest))]


def random_matrix(shape: tuple[int, int]) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") * shape[1] ** -0.5).to(BF16)


def few_row(name: str, copies: list[Linear], num_rows: int, inputs: int, floor: GpuFloor) -> Row:
    """The weights in turn."""
    x = torch.randn(num_rows, inputs, device="cuda").to(BF16)
    seconds = seconds_per_work([lambda linear=linear: linear(x) for linear in copies])
    return floor.bytes_row(f"{name}, {num_rows} rows", seconds, copies[0].num_bytes, PART)


def many_row(
    name: str, linear: Linear, num_rows: int, shape: tuple[int, int], floor: GpuFloor
) -> Row:
    """The floor counts arithmetic only, in bfloat16; 8-bit floats may undercut it."""
    outputs, inputs = shape
    x = torch.randn(num_rows, inputs, device="cuda").to(BF16)
    seconds = seconds_per_work([lambda: linear(x)])
    return floor.flops_row(f"{name}, {num_rows} rows", seconds, 2.0 * num_rows * outputs * inputs)
