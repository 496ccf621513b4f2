"""Cosines and sines of rotary positions, with the frequency scalings that checkpoints state."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from cluster.models.card import (
    DecoderConfig,
    LinearRopeScaling,
    Llama3RopeScaling,
    RopeScaling,
    YarnRopeScaling,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeTables:
    """One table, or two where windowed layers turn at a speed of their own."""

    plain: torch.Tensor  # float32 [max_context_tokens, 2, rope_dim / 2], cosines first
    windowed: torch.Tensor  # of the layers with a window: often the same tensor

    @classmethod
    def of(
        cls, config: DecoderConfig, divisors: torch.Tensor | None, device: torch.device
    ) -> RopeTables:
        """Of a model; see `rope_table` for `divisors`."""
        plain = rope_table(config, divisors).to(device)
        theta = None if config.window is None else config.window.rope_theta
        if theta is None:
            return cls(plain=plain, windowed=plain)
        frequencies = rope_frequencies(theta, rope_dim(config))
        windowed = _table(frequencies, config.max_context_tokens).to(device)
        return cls(plain=plain, windowed=windowed)


def rope_dim(config: DecoderConfig) -> int:
    """Values of a head that are rotated."""
    return config.head_dim if config.latent is None else config.latent.rope_dim


def rope_table(config: DecoderConfig, divisors: torch.Tensor | None = None) -> torch.Tensor:
    """float32 [max_context_tokens, 2, rope_dim / 2], cosines first.

    `divisors` [rope_dim / 2] are a checkpoint's own frequency scaling; they replace the config's.
    """
    theta, dim, scaling = config.rope_theta, rope_dim(config), config.rope_scaling
    if divisors is not None:
        return _table(rope_frequencies(theta, dim) / divisors, config.max_context_tokens)
    table = _table(scaled_frequencies(theta, dim, scaling), config.max_context_tokens)
    return table if scaling is None else table * magnitude(scaling)


def rope_frequencies(theta: float, dim: int) -> torch.Tensor:
    """float32 [dim / 2]: radians per token (Su et al., 2021)."""
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def scaled_frequencies(theta: float, dim: int, scaling: RopeScaling | None) -> torch.Tensor:
    """float32 [dim / 2], as the scaling has it."""
    frequencies = rope_frequencies(theta, dim)
    match scaling:
        case None:
            return frequencies
        case LinearRopeScaling():
            return frequencies / scaling.factor
        case Llama3RopeScaling():
            return _llama3_scaled(frequencies, scaling)
        case YarnRopeScaling():
            return _yarn_scaled(frequencies, scaling, theta)


def magnitude(scaling: RopeScaling) -> float:
    """What multiplies cosines and sines; other than 1 for YaRN only."""
    if not isinstance(scaling, YarnRopeScaling):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        above = yarn_mscale(scaling.factor, scaling.mscale)
        return above / yarn_mscale(scaling.factor, scaling.mscale_all_dim)
    return yarn_mscale(scaling.factor)


def yarn_mscale(factor: float, weight: float = 1.0) -> float:
    """0.1 * weight * ln(factor) + 1 (Peng et al., 2023, section 3.4); 1 up to a factor of 1."""
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def _table(frequencies: torch.Tensor, num_positions: int) -> torch.Tensor:
    angles = torch.outer(torch.arange(num_positions).float(), frequencies)
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def _llama3_scaled(frequencies: torch.Tensor, scaling: Llama3RopeScaling) -> torch.Tensor:
    """Long wavelengths are stretched by `factor`, short ones kept, those between interpolated."""
    turns = scaling.original_max_context_tokens * frequencies / (2 * math.pi)
    width = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / width).clamp(0.0, 1.0)
    return frequencies * keep + frequencies / scaling.factor * (1 - keep)


def _yarn_scaled(frequencies: torch.Tensor, scaling: YarnRopeScaling, theta: float) -> torch.Tensor:
    """Kept where a dimension turns `beta_fast` times or more in the original context, divided by
    `factor` where `beta_slow` times or less, on a ramp over the dimensions between."""
    dim = 2 * frequencies.shape[0]

    def dimension(num_turns: float) -> float:
        wavelength = scaling.original_max_context_tokens / (2 * math.pi * num_turns)
        return dim * math.log(wavelength) / (2 * math.log(theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    return frequencies * (1 - ramp) + frequencies / scaling.factor * ramp
