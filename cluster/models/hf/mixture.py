"""Mixtral and Qwen 3 MoE in config.json."""

from __future__ import annotations

from dataclasses import replace

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import Activation, DecoderConfig, MixtureConfig
from cluster.models.decoder_bounds import check_decoder
from cluster.models.fields import Fields
from cluster.models.hf.shape import Defaults, FamilyReader, decoder_of_shape
from cluster.models.hf.window import window_of
from cluster.models.mixture_bounds import check_mixture

_MIXTRAL = Defaults(max_context_tokens=131072, num_kv_heads=8)
_MIXTRAL_THETA, _MIXTRAL_EPS = 1_000_000.0, 1e-5
_QWEN3_MOE = Defaults(max_context_tokens=32768, num_kv_heads=4)
_QWEN_WINDOW_TOKENS = 4096


def _mixtral(fields: Fields) -> DecoderConfig:
    """The experts' size is intermediate_size; every layer is a mixture."""
    config = mixture_shape(fields, _MIXTRAL)
    config = replace(config, rms_norm_eps=fields.number("rms_norm_eps", _MIXTRAL_EPS))
    if not _states_theta(fields):
        config = replace(config, rope_theta=_MIXTRAL_THETA)
    mixture = MixtureConfig(
        num_experts=num_experts_of(fields, 8),
        num_experts_per_token=fields.integer("num_experts_per_tok", 2),
        expert_size=config.intermediate_size,
    )
    window = fields.integer("sliding_window") if "sliding_window" in fields else None
    return _windowed(replace(config, mixture=check_mixture(mixture, fields.where)), fields, window)


def _qwen3_moe(fields: Fields) -> DecoderConfig:
    """Every decoder_sparse_step-th layer is a mixture, but those of mlp_only_layers."""
    config = mixture_shape(fields, _QWEN3_MOE)
    has_bias = fields.flag("attention_bias", False)
    config = replace(config, attention_bias=has_bias, output_bias=has_bias, has_qk_norm=True)
    mixture = MixtureConfig(
        num_experts=num_experts_of(fields, 128),
        num_experts_per_token=fields.integer("num_experts_per_tok", 8),
        expert_size=fields.integer("moe_intermediate_size", 768),
        dense_layers=_dense_layers(fields, config.num_layers),
        normalizes_weights=fields.flag("norm_topk_prob", False),
    )
    window = fields.integer("sliding_window", _QWEN_WINDOW_TOKENS)
    is_used = fields.flag("use_sliding_window", False)
    config = replace(config, mixture=check_mixture(mixture, fields.where))
    return _windowed(config, fields, window if is_used else None)


def mixture_shape(fields: Fields, defaults: Defaults) -> DecoderConfig:
    """What `decoder_of_shape` says, within bounds. Experts are gated by SiLU only."""
    config = check_decoder(decoder_of_shape(fields, defaults), fields.where)
    if config.activation is not Activation.SILU:
        raise UnsupportedModel(
            f"{fields.where}: experts gated by {config.activation.value}; supported: silu"
        )
    return config


def num_experts_of(fields: Fields, default: int) -> int:
    """Routed experts; the key has had three names."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    stated = {fields.integer(name) for name in names if name in fields}
    if len(stated) > 1:
        raise BadCheckpoint(f"{fields.where}: {' and '.join(names)} differ: {sorted(stated)}")
    return stated.pop() if stated else default


def _dense_layers(fields: Fields, num_layers: int) -> frozenset[int]:
    step = fields.integer("decoder_sparse_step", 1)
    if step < 1:
        raise BadCheckpoint(f"{fields.where}: decoder_sparse_step is {step}; it must be positive")
    listed = frozenset(fields.integers("mlp_only_layers"))
    return frozenset(i for i in range(num_layers) if i in listed or (i + 1) % step)


def _windowed(config: DecoderConfig, fields: Fields, num_tokens: int | None) -> DecoderConfig:
    """A window, where there is one, is that of all layers."""
    if num_tokens is None:
        return config
    layers = frozenset(range(config.num_layers))
    window = window_of(fields, num_tokens, layers, config.max_context_tokens)
    return replace(config, window=window)


def _states_theta(fields: Fields) -> bool:
    stated = fields.section("rope_parameters" if "rope_parameters" in fields else "rope_scaling")
    return "rope_theta" in fields or "rope_theta" in stated


MIXTURES: dict[str, FamilyReader] = {
    "MixtralForCausalLM": _mixtral,
    "Qwen3MoeForCausalLM": _qwen3_moe,
}
