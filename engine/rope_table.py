"""Cosines and sines of rotary positions, with the frequency scaling of Llama 3.1."""

from __future__ import annotations

import math

import torch

from cluster.models.card import DecoderConfig, Llama3RopeScaling


def rope_table(config: DecoderConfig, divisors: torch.Tensor | None = None) -> torch.Tensor:
    """float32 [max_context_tokens, 2, head_dim / 2], cosines first.

    `divisors` [head_dim / 2] are a checkpoint's own frequency scaling; they replace the config's.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if divisors is not None:
        frequencies = frequencies / divisors
    elif isinstance(config.rope_scaling, Llama3RopeScaling):
        frequencies = _llama3_scaled(frequencies, config.rope_scaling)
    angles = torch.outer(torch.arange(config.max_context_tokens).float(), frequencies)
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def _llama3_scaled(frequencies: torch.Tensor, scaling: Llama3RopeScaling) -> torch.Tensor:
    """Long wavelengths are stretched by `factor`, short ones kept, those between interpolated."""
    turns = scaling.original_max_context_tokens * frequencies / (2 * math.pi)
    width = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / width).clamp(0.0, 1.0)
    return frequencies * keep + frequencies / scaling.factor * (1 - keep)
