"""Llama 3.1's rotary scaling, recovered from the factors that a GGUF stores instead of it.

A GGUF keeps only the result, one divisor per frequency. All Llama 3.x checkpoints share the same
low and high frequency factors and original context; the divisors are computed from these and must
be equal to the stored ones, or the model is refused.
"""

from __future__ import annotations

import math
import struct

from cluster.errors import UnsupportedModel
from cluster.models.card import Llama3RopeScaling
from cluster.models.gguf.header import GgufHeader, GgufTensor

_LOW, _HIGH, _ORIGINAL_CONTEXT_TOKENS = 1.0, 4.0, 8192
_RELATIVE_TOLERANCE = 1e-4
"""The divisors are float32 and were computed in float32."""


def scaling_of_factors(
    header: GgufHeader, tensor: GgufTensor, rope_theta: float, head_dim: int
) -> Llama3RopeScaling:
    """Raises UnsupportedModel when the factors are not Llama 3's."""
    stored = _floats(header, tensor)
    scaling = Llama3RopeScaling(
        factor=max(stored, default=1.0),
        low_freq_factor=_LOW,
        high_freq_factor=_HIGH,
        original_max_context_tokens=_ORIGINAL_CONTEXT_TOKENS,
    )
    expected = llama3_divisors(scaling, rope_theta, head_dim)
    close = len(stored) == len(expected) and all(
        math.isclose(a, b, rel_tol=_RELATIVE_TOLERANCE)
        for a, b in zip(stored, expected, strict=True)
    )
    if not close:
        raise UnsupportedModel(
            f"{header.path}: {tensor.name} holds rotary factors that are not Llama 3.1's; "
            "use the model's safetensors, whose config.json states its scaling"
        )
    return scaling


def llama3_divisors(scaling: Llama3RopeScaling, rope_theta: float, head_dim: int) -> list[float]:
    """What each of the head_dim / 2 frequencies is divided by."""
    return [
        _divisor(scaling, 2 * math.pi * rope_theta ** (2 * index / head_dim))
        for index in range(head_dim // 2)
    ]


def _divisor(scaling: Llama3RopeScaling, wavelength_tokens: float) -> float:
    turns = scaling.original_max_context_tokens / wavelength_tokens
    if turns > scaling.high_freq_factor:
        return 1.0
    if turns < scaling.low_freq_factor:
        return scaling.factor
    span = scaling.high_freq_factor - scaling.low_freq_factor
    smooth = (turns - scaling.low_freq_factor) / span
    return 1.0 / ((1.0 - smooth) / scaling.factor + smooth)


def _floats(header: GgufHeader, tensor: GgufTensor) -> list[float]:
    if tensor.type_name != "F32" or tensor.num_bytes > 1 << 16:
        raise UnsupportedModel(f"{header.path}: {tensor.name} is not a short float32 vector")
    with header.path.open("rb") as file:
        file.seek(tensor.offset)
        raw = file.read(tensor.num_bytes)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))
