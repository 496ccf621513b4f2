"""Llama, Qwen 2, Qwen 3 and Gemma 3 in a GGUF header, as llama.cpp writes and reads them."""

from __future__ import annotations

import math
from dataclasses import replace

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import Activation, DecoderConfig, WindowConfig
from cluster.models.fields import Fields
from cluster.models.gguf.header import GgufHeader
from cluster.models.gguf.shape import GgufReader, decoder_of_header

_WINDOW = "attention.sliding_window"
_PATTERN = "attention.sliding_window_pattern"
_LOCAL_THETA, _PERIOD = 10000.0, 6
_LAYERS_OF_27B = 62
"""llama.cpp knows Gemma 3 27B by its layers; its scores are scaled by hidden_size / num_heads."""


def _llama(header: GgufHeader, keys: Fields) -> DecoderConfig:
    """A window (Mistral 7B v0.1) is that of every layer."""
    config = decoder_of_header(header, keys)
    window = _window_tokens(keys)
    if window is None or window >= config.max_context_tokens:
        return config
    every = frozenset(range(config.num_layers))
    return replace(config, window=WindowConfig(num_tokens=window, layers=every))


def _qwen2(header: GgufHeader, keys: Fields) -> DecoderConfig:
    if (window := _window_tokens(keys)) is not None:
        raise UnsupportedModel(
            f"{keys.where}: {_WINDOW} {window} is not run from a GGUF, which does not say in which "
            "layers; use the model's safetensors"
        )
    return decoder_of_header(header, keys)


def _qwen3(header: GgufHeader, keys: Fields) -> DecoderConfig:
    return replace(_qwen2(header, keys), has_qk_norm=True)


def _gemma3(header: GgufHeader, keys: Fields) -> DecoderConfig:
    """Norm weights are stored with the 1 that Gemma adds to them."""
    config = decoder_of_header(header, keys)
    is_27b = config.num_layers == _LAYERS_OF_27B
    score_dim = config.hidden_size // config.num_heads if is_27b else config.head_dim
    return replace(
        config,
        activation=Activation.GELU_TANH,
        has_qk_norm=True,
        has_post_norms=True,
        embedding_scale=math.sqrt(max(config.hidden_size, 1)),
        attention_scale=max(score_dim, 1) ** -0.5,
        window=_gemma3_window(keys, config.num_layers),
    )


def _gemma3_window(keys: Fields, num_layers: int) -> WindowConfig | None:
    """In all layers but every sixth, unless the file has a pattern of its own."""
    num_tokens = _window_tokens(keys)
    if num_tokens is None:
        return None
    if isinstance(keys.raw(_PATTERN), list):
        raise UnsupportedModel(f"{keys.where}: {_PATTERN} by layers is not run")
    period = keys.integer(_PATTERN, _PERIOD)
    if period < 1:
        raise BadCheckpoint(f"{keys.where}: {_PATTERN} is {period}; it must be positive")
    layers = frozenset(index for index in range(num_layers) if (index + 1) % period)
    if not layers:
        return None
    theta = keys.number("rope.freq_base_swa", _LOCAL_THETA)
    return WindowConfig(num_tokens=num_tokens, layers=layers, rope_theta=theta)


def _window_tokens(keys: Fields) -> int | None:
    """0 is none."""
    return keys.integer(_WINDOW, 0) or None


DENSE: dict[str, GgufReader] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
