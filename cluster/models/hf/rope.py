"""Rotary positions as a config.json states them, in both spellings:

rope_theta and rope_scaling                        before transformers 5
rope_parameters, with rope_theta inside            since
"""

from __future__ import annotations

import math
from collections.abc import Callable

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import (
    LinearRopeScaling,
    Llama3RopeScaling,
    RopeScaling,
    YarnRopeScaling,
)
from cluster.models.fields import Fields

DEFAULT_THETA = 10000.0
_MAX = 1e6
"""Of every factor: far above any that is in use, and no overflow below."""


def rope_of_hf(fields: Fields, max_context_tokens: int) -> tuple[float, RopeScaling | None]:
    """The base frequency and the scaling. Raises UnsupportedModel by the scaling's name."""
    rope = fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    for where in (fields, rope):
        rotary = where.number("partial_rotary_factor", 1.0)
        if rotary != 1.0:
            raise UnsupportedModel(f"{where.where}: partial_rotary_factor {rotary}; supported: 1.0")
    theta = rope.number("rope_theta", fields.number("rope_theta", DEFAULT_THETA))
    original = _original_context(fields, rope, max_context_tokens)
    return theta, scaling_of_hf(rope, original, max_context_tokens)


def scaling_of_hf(
    rope: Fields, original_context_tokens: int, max_context_tokens: int
) -> RopeScaling | None:
    """What a rope_scaling or rope_parameters section says; None for the plain frequencies."""
    nested = rope.sections()
    if nested or "mrope_section" in rope:
        name = nested[0] if nested else "mrope_section"
        raise UnsupportedModel(f"{rope.where}: {name!r} is not run by this architecture")
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return None
    if kind not in _READERS:
        raise UnsupportedModel(
            f"{rope.where}: rope type {kind!r}; supported: default, {', '.join(_READERS)}"
        )
    scaling = _READERS[kind](rope, original_context_tokens, max_context_tokens)
    if not _is_sound(scaling):
        raise BadCheckpoint(f"{rope.where}: the scaling {scaling} is out of range")
    return scaling


def _original_context(fields: Fields, rope: Fields, max_context_tokens: int) -> int:
    """Beside the section before inside it, as transformers has it; else the whole context."""
    key = "original_max_position_embeddings"
    return fields.integer(key, rope.integer(key, max_context_tokens))


def _linear(rope: Fields, original: int, context: int) -> RopeScaling:
    return LinearRopeScaling(factor=rope.number("factor"))


def _llama3(rope: Fields, original: int, context: int) -> RopeScaling:
    return Llama3RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_context_tokens=original,
    )


def _yarn(rope: Fields, original: int, context: int) -> RopeScaling:
    return YarnRopeScaling(
        factor=rope.number("factor", context / original if original > 0 else math.inf),
        original_max_context_tokens=original,
        beta_fast=rope.number("beta_fast", 32.0) or 32.0,
        beta_slow=rope.number("beta_slow", 1.0) or 1.0,
        attention_factor=_number_or_none(rope, "attention_factor"),
        mscale=_number_or_none(rope, "mscale"),
        mscale_all_dim=_number_or_none(rope, "mscale_all_dim"),
        truncate=rope.flag("truncate", True),
    )


_READERS: dict[str, Callable[[Fields, int, int], RopeScaling]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}


def _number_or_none(rope: Fields, key: str) -> float | None:
    return rope.number(key) if key in rope else None


def _is_sound(scaling: RopeScaling) -> bool:
    if not 1.0 <= scaling.factor <= _MAX:
        return False
    match scaling:
        case LinearRopeScaling():
            return True
        case Llama3RopeScaling():
            return (
                0.0 < scaling.low_freq_factor < scaling.high_freq_factor <= _MAX
                and scaling.original_max_context_tokens > 0
            )
        case YarnRopeScaling():
            weights = (scaling.attention_factor, scaling.mscale, scaling.mscale_all_dim)
            return (
                0.0 < scaling.beta_slow <= scaling.beta_fast <= _MAX
                and 0 < scaling.original_max_context_tokens <= 1 << 28
                and all(weight is None or 0.0 <= weight <= _MAX for weight in weights)
            )
