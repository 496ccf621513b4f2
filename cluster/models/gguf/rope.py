"""Rotary scaling as llama.cpp stores it: a type and a factor, or a divisor per frequency."""

from __future__ import annotations

import math

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import LinearRopeScaling, RopeScaling, YarnRopeScaling
from cluster.models.fields import Fields
from cluster.models.gguf.header import GgufHeader
from cluster.models.gguf.rope_factors import scaling_of_factors

THETA = 10000.0
"""Where rope.freq_base is absent."""
_FACTORS = "rope_freqs.weight"
_YARN_NEUTRAL = {
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
}
"""llama.cpp's own variations of YaRN; only these values of theirs are transformers' YaRN too."""


def scaling_of_gguf(
    header: GgufHeader, keys: Fields, head_dim: int, context_tokens: int
) -> RopeScaling | None:
    """Raises UnsupportedModel by the scaling's name."""
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0)) or 1.0
    kind = keys.text("rope.scaling.type", "none" if factor == 1.0 else "linear")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModel(
            f"{keys.where}: rope scaling {kind!r}; supported: none, linear, yarn and Llama 3.1's"
        )
    if not (math.isfinite(factor) and 1.0 <= factor <= 1e6):
        raise BadCheckpoint(f"{keys.where}: rope.scaling.factor is {factor}")
    if _FACTORS in header.tensors:
        if kind != "none":
            raise UnsupportedModel(f"{keys.where}: rope scaling {kind!r} beside {_FACTORS}")
        theta = keys.number("rope.freq_base", THETA)
        return scaling_of_factors(header, header.tensors[_FACTORS], theta, head_dim)
    if kind == "yarn":
        return _yarn(keys, factor, context_tokens)
    return LinearRopeScaling(factor=factor) if kind == "linear" and factor != 1.0 else None


def _yarn(keys: Fields, factor: float, context_tokens: int) -> YarnRopeScaling:
    for name, neutral in _YARN_NEUTRAL.items():
        if keys.number(name, neutral) != neutral:
            raise UnsupportedModel(f"{keys.where}: {name} {keys.raw(name)} is not run")
    scaling = YarnRopeScaling(
        factor=factor,
        original_max_context_tokens=keys.integer(
            "rope.scaling.original_context_length", context_tokens
        ),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
    )
    if not (
        0.0 < scaling.beta_slow <= scaling.beta_fast <= 1e6
        and 0 < scaling.original_max_context_tokens <= 1 << 28
    ):
        raise BadCheckpoint(f"{keys.where}: the scaling {scaling} is out of range")
    return scaling
