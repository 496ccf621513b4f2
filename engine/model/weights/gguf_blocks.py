"""GGUF's quantized blocks as groups: value = scale * integer + minimum, exactly.

Every format below stores unsigned integers and, per group, a scale and what is added to it. The
layouts are those of llama.cpp (ggml-common.h); the gguf package's reading is the oracle in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from cluster.models.gguf.types import GROUPS
from kernels.weights import GroupedWeight

_K_BLOCK = 256
"""Values in a block of the K formats."""

Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Integers uint8 [num_blocks, block]; scales and minimums float32 [num_blocks, block / group]."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One quantization of GGUF."""

    block: int
    """Values in a block."""
    num_bytes: int
    """Of a block."""
    unpack: Callable[[torch.Tensor], Parts]
    """From uint8 [num_blocks, num_bytes]."""


def grouped(raw: torch.Tensor, type_name: str, shape: tuple[int, int]) -> GroupedWeight:
    """raw uint8 [num_bytes], as stored -> [out, in], dequantizing to float32.

    `type_name` is one of FORMATS, whose block divides the inputs.
    """
    form, (bits, group) = FORMATS[type_name], GROUPS[type_name]
    values, scales, minimums = form.unpack(raw.view(-1, form.num_bytes))
    outputs, inputs = shape
    return GroupedWeight(
        values=values.reshape(shape),
        scales=scales.reshape(outputs, inputs // group),
        minimums=minimums.reshape(outputs, inputs // group),
        bits=bits,
        dtype=torch.float32,
    )


def _q4_0(blocks: torch.Tensor) -> Parts:
    """Scale, 32 nibbles around 8."""
    scales = _half(blocks, 0)
    return _nibbles(blocks[:, 2:]), scales, -8 * scales


def _q4_1(blocks: torch.Tensor) -> Parts:
    """Scale, minimum, 32 nibbles."""
    return _nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: torch.Tensor) -> Parts:
    """Scale, 32 fifth bits, 32 nibbles around 16."""
    scales = _half(blocks, 0)
    return _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6]), scales, -16 * scales


def _q5_1(blocks: torch.Tensor) -> Parts:
    """Scale, minimum, 32 fifth bits, 32 nibbles."""
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return values, _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: torch.Tensor) -> Parts:
    """Scale, 32 signed bytes."""
    scales = _half(blocks, 0)
    return blocks[:, 2:] ^ 0x80, scales, -128 * scales


def _q4_k(blocks: torch.Tensor) -> Parts:
    """Scale of scales and of minimums, 12 bytes of both in 6 bits, 256 nibbles."""
    scales, minimums = _k_scales(blocks)
    return _k_nibbles(blocks[:, 16:]), scales, minimums


def _q5_k(blocks: torch.Tensor) -> Parts:
    """As Q4_K with 32 bytes between, whose bit j is the fifth of group j."""
    scales, minimums = _k_scales(blocks)
    planes = [(blocks[:, 16:48] >> group & 1) << 4 for group in range(8)]
    return _k_nibbles(blocks[:, 48:]) | torch.cat(planes, 1), scales, minimums


def _q6_k(blocks: torch.Tensor) -> Parts:
    """256 nibbles, 256 pairs of upper bits, 16 signed scales, a scale of scales; around 32."""
    halves = blocks[:, :128].view(-1, 2, 64)  # of 128 values each
    low = torch.cat((halves & 15, halves >> 4), 2)  # [num_blocks, 2, 128]
    pairs = blocks[:, 128:192].view(-1, 2, 32)
    high = torch.cat([(pairs >> shift & 3) << 4 for shift in (0, 2, 4, 6)], 2)
    scales = _half(blocks, 208) * blocks[:, 192:208].contiguous().view(torch.int8)
    return (low | high).flatten(1), scales, -32 * scales


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 [num_blocks, 8] each, from the first 16 bytes of a block."""
    first, second, third = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat((first & 63, (third & 15) | (first >> 6) << 4), 1)
    minimums = torch.cat((second & 63, (third >> 4) | (second >> 6) << 4), 1)
    return _half(blocks, 0) * scales, -(_half(blocks, 2) * minimums)


def _k_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[num_blocks, 128] -> [num_blocks, 256]: runs of 32 bytes, the low halves, then the high."""
    runs = packed.view(-1, 4, 32)
    return torch.stack((runs & 15, runs >> 4), 2).flatten(1)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[num_blocks, 16] -> uint8 [num_blocks, 32]: the low halves of all bytes, then the high."""
    return torch.cat((packed & 15, packed >> 4), 1)


def _fifth_bits(packed: torch.Tensor) -> torch.Tensor:
    """[num_blocks, 4] -> [num_blocks, 32]: bit i of the little-endian word, as 16 or 0."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((packed[..., None] >> shifts & 1) << 4).flatten(1)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at a byte offset of each block: float32 [num_blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


FORMATS = {
    "Q4_0": BlockFormat(32, 18, _q4_0),
    "Q4_1": BlockFormat(32, 20, _q4_1),
    "Q5_0": BlockFormat(32, 22, _q5_0),
    "Q5_1": BlockFormat(32, 24, _q5_1),
    "Q8_0": BlockFormat(32, 34, _q8_0),
    "Q4_K": BlockFormat(_K_BLOCK, 144, _q4_k),
    "Q5_K": BlockFormat(_K_BLOCK, 176, _q5_k),
    "Q6_K": BlockFormat(_K_BLOCK, 210, _q6_k),
}
