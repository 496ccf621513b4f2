"""Llama, Mistral, Qwen 2 and Qwen 3 in config.json."""

from __future__ import annotations

from dataclasses import replace

from cluster.errors import UnsupportedModel
from cluster.models.card import DecoderConfig, WindowConfig
from cluster.models.fields import Fields
from cluster.models.hf.shape import Defaults, FamilyReader, decoder_of_shape
from cluster.models.hf.window import sliding_layers, stated_window, window_of

_LLAMA = Defaults(max_context_tokens=2048)
_MISTRAL = Defaults(max_context_tokens=131072, num_kv_heads=8)
_QWEN2 = Defaults(max_context_tokens=32768, num_kv_heads=32)
_QWEN3 = Defaults(max_context_tokens=32768, num_kv_heads=32, head_dim=128)
_WINDOW_TOKENS = 4096
_FIRST_WINDOWED_LAYER = 28


def _llama(fields: Fields) -> DecoderConfig:
    has_bias = fields.flag("attention_bias", False)
    return replace(
        decoder_of_shape(fields, _LLAMA),
        attention_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


def _mistral(fields: Fields) -> DecoderConfig:
    """Every layer has the window; a file whose layer_types say otherwise is refused."""
    config = decoder_of_shape(fields, _MISTRAL)
    num_tokens = stated_window(fields, _WINDOW_TOKENS)
    every = frozenset(range(config.num_layers)) if num_tokens is not None else frozenset[int]()
    if sliding_layers(fields, every, config.num_layers) != every:
        raise UnsupportedModel(
            f"{fields.where}: layer_types differ from sliding_window; Mistral's layers are alike"
        )
    return replace(config, window=window_of(fields, num_tokens, every, config.max_context_tokens))


def _qwen2(fields: Fields) -> DecoderConfig:
    config = decoder_of_shape(fields, _QWEN2)
    return replace(config, attention_bias=True, window=qwen_window(fields, config))


def _qwen3(fields: Fields) -> DecoderConfig:
    config = decoder_of_shape(fields, _QWEN3)
    has_bias = fields.flag("attention_bias", False)
    return replace(
        config,
        attention_bias=has_bias,
        output_bias=has_bias,
        has_qk_norm=True,
        window=qwen_window(fields, config),
    )


def qwen_window(fields: Fields, config: DecoderConfig) -> WindowConfig | None:
    """Layers from max_window_layers on, where use_sliding_window says so, or by layer_types."""
    is_used = fields.flag("use_sliding_window", False)
    num_tokens = stated_window(fields, _WINDOW_TOKENS) if is_used else None
    first = fields.integer("max_window_layers", _FIRST_WINDOWED_LAYER)
    last = frozenset(range(max(first, 0), config.num_layers))
    layers = sliding_layers(
        fields, last if num_tokens is not None else frozenset(), config.num_layers
    )
    return window_of(fields, num_tokens, layers, config.max_context_tokens)


DENSE: dict[str, FamilyReader] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
}
