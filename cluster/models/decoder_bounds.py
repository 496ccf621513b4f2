"""Limits on a decoder's shape: a checkpoint's numbers are not trusted until they passed here."""

from __future__ import annotations

import math

from cluster.errors import BadCheckpoint
from cluster.models.card import DecoderConfig, YarnRopeScaling

_MAX = {
    "vocab_size": 1 << 21,
    "hidden_size": 1 << 17,
    "intermediate_size": 1 << 19,
    "num_layers": 1 << 10,
    "num_heads": 1 << 12,
    "num_kv_heads": 1 << 12,
    "head_dim": 1 << 10,
    "max_context_tokens": 1 << 28,
}


def check_decoder(config: DecoderConfig, where: str) -> DecoderConfig:
    """Returns the config, or raises BadCheckpoint with the first field that cannot be."""
    for name in _MAX:
        check_size(name, getattr(config, name), where)
    for name in ("rms_norm_eps", "rope_theta", "embedding_scale", "attention_scale"):
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise BadCheckpoint(f"{where}: {name} is {value}; it must be finite and above 0")
    _check_window(config, where)
    if isinstance(config.rope_scaling, YarnRopeScaling) and config.rope_theta <= 1:
        raise BadCheckpoint(f"{where}: rope_theta is {config.rope_theta}; YaRN needs it above 1")
    if config.num_heads % config.num_kv_heads:
        raise BadCheckpoint(
            f"{where}: {config.num_heads} query heads cannot share {config.num_kv_heads} KV heads"
        )
    if config.head_dim % 2:
        raise BadCheckpoint(f"{where}: head_dim is {config.head_dim}; rotary pairs need it even")
    return config


def check_size(name: str, value: int, where: str) -> int:
    """Returns the value of a DecoderConfig's field, or raises BadCheckpoint.

    For what is counted before the config is whole: a set of layers, for example.
    """
    if not 1 <= value <= _MAX[name]:
        raise BadCheckpoint(f"{where}: {name} is {value}; allowed: 1 to {_MAX[name]}")
    return value


def _check_window(config: DecoderConfig, where: str) -> None:
    window = config.window
    if window is None:
        return
    if not 1 <= window.num_tokens <= _MAX["max_context_tokens"]:
        raise BadCheckpoint(f"{where}: the window is {window.num_tokens} tokens")
    theta = window.rope_theta
    if theta is not None and not (math.isfinite(theta) and theta > 0):
        raise BadCheckpoint(f"{where}: the windows' rope_theta is {theta}; it must be above 0")
