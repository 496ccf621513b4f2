"""Stored GGUF tensors to float32.

What is made of groups goes through `gguf_blocks`, in whole tensors; the gguf package does the
others, and gives the same values for these (tested), in row groups that take ten times as long.
"""

from __future__ import annotations

import gguf
import torch

from engine.model.weights.gguf_blocks import FORMATS, grouped

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantize(raw: torch.Tensor, type_name: str) -> torch.Tensor:
    """raw uint8 [num_bytes], as stored -> float32 [num_values].

    Raises NotImplementedError for a format that the gguf package cannot read either.
    """
    if type_name in _PLAIN:
        return raw.view(_PLAIN[type_name]).float()
    if type_name in FORMATS:
        form = FORMATS[type_name]
        blocks = grouped(raw, type_name, (raw.numel() // form.num_bytes, form.block))
        return blocks.dequantize().flatten()
    kind = gguf.GGMLQuantizationType[type_name]
    return torch.from_numpy(gguf.quants.dequantize(raw.numpy(), kind)).flatten()
