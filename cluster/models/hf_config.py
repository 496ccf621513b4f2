"""A Hugging Face config.json as a decoder's shape, with transformers' defaults for absent keys.

Refuses by name what the engine does not implement, before any weight is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig, Llama3RopeScaling
from cluster.models.decoder_bounds import check_decoder
from cluster.models.fields import Fields


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What an absent key means; None: as many as query heads."""

    max_context_tokens: int
    num_kv_heads: int | None
    sliding_window: int | None


_ARCHITECTURES = {
    "LlamaForCausalLM": _Defaults(2048, None, None),
    "MistralForCausalLM": _Defaults(131072, 8, 4096),
}


def decoder_of_hf(values: dict[str, Any], where: str) -> tuple[str, DecoderConfig]:
    """The architecture's name and the shape.

    Raises UnsupportedModel for an unknown architecture or option, BadCheckpoint for bad values.
    """
    fields = Fields(values, where)
    architecture = _architecture(fields)
    _require_supported(fields)
    heads = fields.integer("num_attention_heads")
    if heads < 1:
        raise BadCheckpoint(f"{where}: num_attention_heads is {heads}; it must be positive")
    defaults = _ARCHITECTURES[architecture]
    hidden = fields.integer("hidden_size")
    theta, scaling = _rope(fields)
    config = DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", defaults.num_kv_heads or heads),
        head_dim=fields.integer("head_dim", hidden // heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_context_tokens=min(_contexts(fields, defaults)),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=fields.flag("attention_bias", False),
        output_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
    )
    return architecture, check_decoder(config, where)


def context_notes(values: dict[str, Any], config: DecoderConfig) -> tuple[str, ...]:
    """Says so when a sliding window cut the context."""
    stated = values.get("max_position_embeddings")
    if isinstance(stated, int) and stated > config.max_context_tokens:
        return (
            f"the context is {config.max_context_tokens} tokens, the sliding window, not the "
            f"{stated} of the checkpoint: within its window this model attends to everything",
        )
    return ()


def _architecture(fields: Fields) -> str:
    names = fields.texts("architectures")
    if len(names) != 1 or names[0] not in _ARCHITECTURES:
        raise UnsupportedModel(
            f"{fields.where} has architectures {names}; supported: {', '.join(_ARCHITECTURES)}"
        )
    return names[0]


def _require_supported(fields: Fields) -> None:
    if fields.raw("quantization_config"):
        method = fields.section("quantization_config").raw("quant_method")
        raise UnsupportedModel(
            f"{fields.where}: quantization {method!r} is not run; use the unquantized safetensors "
            "or a GGUF"
        )
    activation = fields.text("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModel(f"{fields.where}: hidden_act {activation!r}; supported: 'silu'")
    rotary = fields.number("partial_rotary_factor", 1.0)
    if rotary != 1.0:
        raise UnsupportedModel(f"{fields.where}: partial_rotary_factor {rotary}; supported: 1.0")


def _contexts(fields: Fields, defaults: _Defaults) -> list[int]:
    """The stated context, and the sliding window where there is one (an explicit null is none)."""
    contexts = [fields.integer("max_position_embeddings", defaults.max_context_tokens)]
    if fields.states("sliding_window"):
        window = fields.integer("sliding_window", 0) or None
    else:
        window = defaults.sliding_window
    return contexts if window is None else [*contexts, window]


def _rope(fields: Fields) -> tuple[float, Llama3RopeScaling | None]:
    """Both spellings: rope_theta + rope_scaling, and rope_parameters with everything inside."""
    rope = fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise UnsupportedModel(f"{fields.where}: rope type {kind!r}; supported: default, llama3")
    return theta, _llama3(rope)


def _llama3(rope: Fields) -> Llama3RopeScaling:
    scaling = Llama3RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_context_tokens=rope.integer("original_max_position_embeddings"),
    )
    sound = (
        1.0 <= scaling.factor <= 1e6
        and 0.0 < scaling.low_freq_factor < scaling.high_freq_factor <= 1e6
        and scaling.original_max_context_tokens > 0
    )
    if not sound:
        raise BadCheckpoint(f"{rope.where}: the scaling {scaling} is out of range")
    return scaling
