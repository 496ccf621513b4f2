"""Stored GGUF blocks to float32.

The common formats are done here by torch, in whole tensors; the gguf package does the others, and
gives the same values for these (tested), in row groups that take ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import torch

_BLOCK = 32
"""Values per block of the formats done here."""


def dequantize(raw: torch.Tensor, type_name: str) -> torch.Tensor:
    """raw uint8 [num_bytes], as stored -> float32 [num_values].

    Raises NotImplementedError for a format that the gguf package cannot read either.
    """
    if type_name in _PLAIN:
        return raw.view(_PLAIN[type_name]).float()
    if type_name in _BLOCKS:
        return _BLOCKS[type_name](raw).flatten()
    kind = gguf.GGMLQuantizationType[type_name]
    return torch.from_numpy(gguf.quants.dequantize(raw.numpy(), kind)).flatten()


def _q8_0(raw: torch.Tensor) -> torch.Tensor:
    """Scale (float16), 32 signed bytes."""
    blocks = raw.view(-1, 2 + _BLOCK)
    return _half(blocks, 0) * blocks[:, 2:].contiguous().view(torch.int8)


def _q4_0(raw: torch.Tensor) -> torch.Tensor:
    """Scale (float16), 32 nibbles around 8."""
    blocks = raw.view(-1, 2 + _BLOCK // 2)
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).view(torch.int8) - 8)


def _q4_1(raw: torch.Tensor) -> torch.Tensor:
    """Scale and minimum (float16), 32 nibbles."""
    blocks = raw.view(-1, 4 + _BLOCK // 2)
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at a byte offset of each block: float32 [num_blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[num_blocks, 16] -> uint8 [num_blocks, 32]: the low halves of all bytes, then the high."""
    return torch.cat((packed & 15, packed >> 4), dim=1)


_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_BLOCKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}
