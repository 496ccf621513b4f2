"""Which layers of a Hugging Face model see a window only."""

from __future__ import annotations

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import WindowConfig
from cluster.models.fields import Fields

SLIDING, FULL = "sliding_attention", "full_attention"


def sliding_layers(fields: Fields, default: frozenset[int], num_layers: int) -> frozenset[int]:
    """Those that `layer_types` names, where it is stated; else `default`."""
    types = fields.texts("layer_types")
    if not types:
        return default
    if unknown := sorted(set(types) - {SLIDING, FULL}):
        raise UnsupportedModel(
            f"{fields.where}: layer_types has {unknown[0]!r}; supported: {SLIDING}, {FULL}"
        )
    if len(types) < num_layers:
        raise BadCheckpoint(
            f"{fields.where}: layer_types has {len(types)} entries for {num_layers} layers"
        )
    return frozenset(index for index in range(num_layers) if types[index] == SLIDING)


def window_of(
    fields: Fields,
    num_tokens: int | None,
    layers: frozenset[int],
    max_context_tokens: int | None = None,
) -> WindowConfig | None:
    """None when no layer has a window, or when it is as wide as the context, where that is told."""
    if not layers:
        return None
    if num_tokens is None:
        raise BadCheckpoint(
            f"{fields.where}: layer {min(layers)} has a sliding window, but sliding_window is none"
        )
    if num_tokens < 1:
        raise BadCheckpoint(f"{fields.where}: sliding_window is {num_tokens}; it must be positive")
    if max_context_tokens is not None and num_tokens >= max_context_tokens:
        return None
    return WindowConfig(num_tokens=num_tokens, layers=layers)


def stated_window(fields: Fields, default: int) -> int | None:
    """sliding_window; an explicit null is none, an absent one the family's default."""
    if fields.states("sliding_window") and "sliding_window" not in fields:
        return None
    return fields.integer("sliding_window", default)
