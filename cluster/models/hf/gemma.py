"""Gemma 3's text decoder in config.json."""

from __future__ import annotations

import math
from dataclasses import replace

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig, RopeScaling
from cluster.models.fields import Fields
from cluster.models.hf.rope import scaling_of_hf
from cluster.models.hf.shape import Defaults, FamilyReader, decoder_of_shape, refuse_if_set
from cluster.models.hf.window import FULL, SLIDING, sliding_layers, stated_window, window_of

_GEMMA3 = Defaults(
    max_context_tokens=131072,
    num_kv_heads=4,
    head_dim=256,
    tie_word_embeddings=True,
    activation_key="hidden_activation",
    activation="gelu_pytorch_tanh",
)
_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0
_WINDOW_TOKENS, _PATTERN, _SCORE_DIM = 4096, 6, 256


def _gemma3(fields: Fields) -> DecoderConfig:
    refuse_if_set(
        fields, "attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"
    )
    without_rope = fields.without("rope_parameters", "rope_scaling", "rope_theta")
    config = decoder_of_shape(without_rope, _GEMMA3)
    theta, scaling, local_theta = _rope(fields, config.max_context_tokens)
    layers = sliding_layers(fields, _local_layers(fields, config), config.num_layers)
    num_tokens = stated_window(fields, _WINDOW_TOKENS)
    has_bias = fields.flag("attention_bias", False)
    score_dim = fields.number("query_pre_attn_scalar", _SCORE_DIM)
    if not 0 < score_dim < math.inf:
        raise BadCheckpoint(f"{fields.where}: query_pre_attn_scalar is {score_dim}")
    window = window_of(fields, num_tokens, layers)  # however wide, it has a theta of its own
    return replace(
        config,
        rope_theta=theta,
        rope_scaling=scaling,
        attention_bias=has_bias,
        output_bias=has_bias,
        has_qk_norm=True,
        has_post_norms=True,
        norm_offset=1.0,
        embedding_scale=math.sqrt(config.hidden_size) if config.hidden_size > 0 else 1.0,
        attention_scale=score_dim**-0.5,
        window=None if window is None else replace(window, rope_theta=local_theta),
    )


def _local_layers(fields: Fields, config: DecoderConfig) -> frozenset[int]:
    """All but every sixth."""
    pattern = fields.integer("sliding_window_pattern", _PATTERN)
    if pattern < 1:
        raise BadCheckpoint(f"{fields.where}: sliding_window_pattern is {pattern}")
    return frozenset(i for i in range(config.num_layers) if (i + 1) % pattern)


def _rope(fields: Fields, context: int) -> tuple[float, RopeScaling | None, float]:
    """(theta, scaling) of the global layers, theta of the local ones, in either spelling."""
    stated = fields.section("rope_parameters")
    if "rope_parameters" in fields and FULL not in stated and SLIDING not in stated:
        raise UnsupportedModel(f"{fields.where}: rope_parameters name neither {FULL} nor {SLIDING}")
    local = stated.section(SLIDING)
    if scaling_of_hf(local, context, context) is not None:
        raise UnsupportedModel(f"{local.where}: scaled positions in windowed layers are not run")
    full = stated.section(FULL)
    scaled = fields.section("rope_scaling") if "rope_scaling" in fields else full
    theta = full.number("rope_theta", fields.number("rope_theta", _GLOBAL_THETA))
    local_theta = local.number("rope_theta", fields.number("rope_local_base_freq", _LOCAL_THETA))
    original = scaled.integer("original_max_position_embeddings", context)
    return theta, scaling_of_hf(scaled, original, context), local_theta


GEMMA: dict[str, FamilyReader] = {"Gemma3ForCausalLM": _gemma3}
