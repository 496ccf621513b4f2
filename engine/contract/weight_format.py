"""In which form a replica holds its matrices. No torch: the server process resolves it."""

from __future__ import annotations

import enum

from cluster.errors import ConfigError
from cluster.models.card import ModelCard, QuantizationConfig

AUTO = "auto"


class WeightFormat(enum.StrEnum):
    """What "auto" has become, or what was asked for."""

    FULL = "full"
    """Everything in the replica's dtype."""
    STORED = "stored"
    """Quantized matrices keep the checkpoint's own groups or 8-bit floats; others are full."""
    INT8 = "int8"
    """Groups of 8 bits at most, quantized on load where the checkpoint has wider values."""
    INT4 = "int4"
    """Groups of 4 bits; embedding and LM head of 8."""
    FP8 = "fp8"
    """E4M3 with a scale per output; embedding and LM head are full."""


def resolve_weights(card: ModelCard, weights: str, dtype: str, device: str) -> WeightFormat:
    """What the option `weights` means for this checkpoint: asked once, when an EngineSpec is made.

    "auto" keeps a quantized checkpoint's own groups, except in float32, which stays the exact
    oracle, and where they would be dequantized anyway. `dtype` is resolved; `device` may be "auto".
    Raises ConfigError for what cannot be.
    """
    if weights == AUTO:
        keeps = dtype != "float32" and _is_kept(card.quantization, device)
        return WeightFormat.STORED if keeps else WeightFormat.FULL
    choices = [form.value for form in WeightFormat]
    if weights not in choices:
        raise ConfigError(
            f"weights is {weights!r}; choose auto, full, int8, int4 or fp8", param="weights"
        )
    if weights == WeightFormat.FP8 and device == "cpu":
        raise no_fp8_on_cpu()
    return WeightFormat(weights)


def no_fp8_on_cpu() -> ConfigError:
    """For 8-bit floats that were asked for by name."""
    return ConfigError(
        "weights is fp8, which only CUDA devices multiply, and the device is cpu; "
        "choose int8, which takes the same memory",
        param="weights",
    )


def _is_kept(quantization: QuantizationConfig | None, device: str) -> bool:
    """Whether kernels run what is stored: no CPU kernel takes 8-bit floats."""
    if quantization is None or quantization.is_reordered:
        return False
    return not (quantization.is_float and device == "cpu")
