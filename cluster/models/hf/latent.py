"""DeepSeek V2 (with its Lite form) and V3 in config.json."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster.errors import UnsupportedModel
from cluster.models.card import (
    DecoderConfig,
    GroupScore,
    LatentConfig,
    MixtureConfig,
    RouterScore,
    YarnRopeScaling,
)
from cluster.models.fields import Fields
from cluster.models.hf.mixture import mixture_shape, num_experts_of
from cluster.models.hf.shape import Defaults, FamilyReader, refuse_if_set
from cluster.models.mixture_bounds import check_latent, check_mixture

_V2 = Defaults(max_context_tokens=2048, head_dim=192)
_V3 = Defaults(max_context_tokens=4096, head_dim=192)
_GREEDY, _GROUPED, _NO_AUX = "greedy", "group_limited_greedy", "noaux_tc"


@dataclass(frozen=True, slots=True, kw_only=True)
class _MixtureDefaults:
    """What an absent key means."""

    num_experts: int
    expert_size: int
    num_shared: int
    first_mixture: int


def _deepseek_v2(fields: Fields) -> DecoderConfig:
    """Softmax scores; groups, where topk_method says so, are ranked by their best expert."""
    config = _with_latent(fields, _V2)
    method = _one_of(fields, "topk_method", _GREEDY, _GROUPED)
    _one_of(fields, "scoring_func", "softmax")
    if fields.flag("norm_topk_prob", False):
        raise UnsupportedModel(
            f"{fields.where}: norm_topk_prob; DeepSeek's and transformers' DeepSeek-V2 disagree "
            "on what it means"
        )
    defaults = _MixtureDefaults(num_experts=64, expert_size=1407, num_shared=2, first_mixture=0)
    mixture = _mixture(fields, config, defaults, fields.integer("num_experts_per_tok"))
    mixture = replace(
        mixture,
        normalizes_weights=False,
        scaling_factor=fields.number("routed_scaling_factor", 1.0),
    )
    if method == _GROUPED:
        mixture = _grouped(mixture, fields.integer("n_group"), fields.integer("topk_group"))
    return _checked(replace(config, rope_is_interleaved=True), mixture, fields)


def _deepseek_v3(fields: Fields) -> DecoderConfig:
    """Sigmoid scores with a bias for the choice; groups are ranked by their best two."""
    config = _with_latent(fields, _V3)
    _one_of(fields, "topk_method", _NO_AUX)
    _one_of(fields, "scoring_func", "sigmoid")
    defaults = _MixtureDefaults(num_experts=256, expert_size=2048, num_shared=1, first_mixture=3)
    mixture = _mixture(fields, config, defaults, fields.integer("num_experts_per_tok", 8))
    mixture = replace(
        _grouped(mixture, fields.integer("n_group", 8), fields.integer("topk_group", 4)),
        score=RouterScore.SIGMOID,
        has_score_bias=True,
        group_score=GroupScore.BEST_TWO,
        normalizes_weights=fields.flag("norm_topk_prob", True),
        scaling_factor=fields.number("routed_scaling_factor", 2.5),
    )
    config = replace(
        config,
        rope_is_interleaved=fields.flag("rope_interleave", True),
        num_prediction_layers=fields.integer("num_nextn_predict_layers", 1),
    )
    return _checked(config, mixture, fields)


def _with_latent(fields: Fields, defaults: Defaults) -> DecoderConfig:
    """The shape and its latent. In these files head_dim, where it is stated, is the rotated part;
    num_key_value_heads means nothing, since every head has keys of its own."""
    refuse_if_set(fields, "attention_bias", "mlp_bias")
    _one_of_numbers(fields, "moe_layer_freq", 1)
    config = mixture_shape(fields.without("head_dim", "num_key_value_heads"), defaults)
    if not isinstance(config.rope_scaling, YarnRopeScaling | None):
        raise UnsupportedModel(f"{fields.where}: rope type; supported: default, yarn")
    query_rank = None if _is_null(fields, "q_lora_rank") else fields.integer("q_lora_rank", 1536)
    latent = LatentConfig(
        query_rank=query_rank,
        kv_rank=fields.integer("kv_lora_rank", 512),
        nope_dim=fields.integer("qk_nope_head_dim", 128),
        rope_dim=fields.integer("qk_rope_head_dim", 64),
        value_dim=fields.integer("v_head_dim", 128),
    )
    check_latent(latent, fields.where)
    return replace(config, latent=latent, head_dim=latent.nope_dim + latent.rope_dim)


def _mixture(
    fields: Fields, config: DecoderConfig, defaults: _MixtureDefaults, num_chosen: int
) -> MixtureConfig:
    expert_size = fields.integer("moe_intermediate_size", defaults.expert_size)
    is_alone = _is_null(fields, "n_shared_experts")
    num_shared = 0 if is_alone else fields.integer("n_shared_experts", defaults.num_shared)
    first = fields.integer("first_k_dense_replace", defaults.first_mixture)
    return MixtureConfig(
        num_experts=num_experts_of(fields, defaults.num_experts),
        num_experts_per_token=num_chosen,
        expert_size=expert_size,
        shared_size=num_shared * expert_size,
        dense_layers=frozenset(range(min(max(first, 0), config.num_layers))),
    )


def _grouped(mixture: MixtureConfig, num_groups: int, num_chosen: int) -> MixtureConfig:
    return replace(mixture, num_groups=num_groups, num_chosen_groups=num_chosen)


def _checked(config: DecoderConfig, mixture: MixtureConfig, fields: Fields) -> DecoderConfig:
    return replace(config, mixture=check_mixture(mixture, fields.where))


def _is_null(fields: Fields, key: str) -> bool:
    """Stated as null: "none", where an absent key means the default."""
    return fields.states(key) and key not in fields


def _one_of(fields: Fields, key: str, *supported: str) -> str:
    """The first where the key is absent. Raises UnsupportedModel for another value."""
    value = fields.text(key, supported[0])
    if value not in supported:
        raise UnsupportedModel(
            f"{fields.where}: {key} {value!r}; supported: {', '.join(supported)}"
        )
    return value


def _one_of_numbers(fields: Fields, key: str, only: int) -> None:
    if fields.integer(key, only) != only:
        raise UnsupportedModel(
            f"{fields.where}: {key} {fields.integer(key, only)}; supported: {only}"
        )


LATENT: dict[str, FamilyReader] = {
    "DeepseekV2ForCausalLM": _deepseek_v2,
    "DeepseekV3ForCausalLM": _deepseek_v3,
}
