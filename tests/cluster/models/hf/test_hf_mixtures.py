"""Mixtures and latents in config.json: read as transformers means them, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from cluster.errors import BadCheckpoint, ModelError, UnsupportedModel
from cluster.kv_shape import KvShape
from cluster.models.card import (
    DecoderConfig,
    GroupScore,
    LatentConfig,
    MixtureConfig,
    RouterScore,
    YarnRopeScaling,
)
from cluster.models.hf.config import decoder_of_hf

MIXTRAL, QWEN3 = "MixtralForCausalLM", "Qwen3MoeForCausalLM"
V2, V3 = "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"
FAMILIES = [MIXTRAL, QWEN3, V2, V3]
SHAPE: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_experts_per_tok": 2,
}
V2_LITE = {  # as its config.json on the hub, in a smaller size
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
    "max_position_embeddings": 163840,
}


def config_of(architecture: str, **values: Any) -> DecoderConfig:
    stated = {**SHAPE, "architectures": [architecture], **values}
    return decoder_of_hf(stated, "config.json")[1]


def mixture_of(architecture: str, **values: Any) -> MixtureConfig:
    mixture = config_of(architecture, **values).mixture
    assert mixture is not None
    return mixture


def written(architecture: str, **values: Any) -> dict[str, Any]:
    """What transformers writes for a configuration, defaults and all."""
    kind = getattr(transformers, architecture).config_class
    return {**kind(**{**SHAPE, **values}).to_dict(), "architectures": [architecture]}


@pytest.mark.parametrize("architecture", FAMILIES)
def test_absent_keys_mean_what_they_mean_in_transformers(architecture: str) -> None:
    assert decoder_of_hf(written(architecture), "written")[1] == config_of(architecture)


def test_mixtrals_experts_have_the_intermediate_size() -> None:
    config = config_of(MIXTRAL, num_local_experts=4)
    assert config.mixture == MixtureConfig(num_experts=4, num_experts_per_token=2, expert_size=96)
    assert config.rope_theta == 1e6
    assert config_of(MIXTRAL, rope_theta=5e5).rope_theta == 5e5


def test_qwens_mixtures_are_where_the_step_and_the_list_say() -> None:
    mixture = mixture_of(QWEN3, decoder_sparse_step=2, mlp_only_layers=[1])
    assert mixture.dense_layers == {0, 1, 2, 4}
    assert not mixture.normalizes_weights
    assert mixture_of(QWEN3, norm_topk_prob=True).normalizes_weights


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_the_number_of_experts_has_two_names(key: str) -> None:
    assert mixture_of(QWEN3, **{key: 16}).num_experts == 16


@pytest.mark.parametrize("architecture", [MIXTRAL, QWEN3])
def test_a_window_is_that_of_every_layer(architecture: str) -> None:
    values = {"sliding_window": 64, "use_sliding_window": True}
    window = config_of(architecture, **values).window
    assert window is not None and window.num_tokens == 64
    assert window.layers == set(range(6))
    assert config_of(architecture, sliding_window=None).window is None
    assert config_of(QWEN3, sliding_window=64, use_sliding_window=False).window is None


def test_v2_lite_as_it_is_on_the_hub() -> None:
    config = config_of(V2, **V2_LITE)
    assert config.latent == LatentConfig(
        query_rank=None, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=16
    )
    assert config.mixture == MixtureConfig(
        num_experts=8,
        num_experts_per_token=2,
        expert_size=24,
        shared_size=48,
        dense_layers=frozenset({0}),
        normalizes_weights=False,
    )
    assert config.head_dim == 24
    kept = KvShape(num_layers=config.num_layers, num_planes=1, num_kv_heads=1, head_dim=40)
    assert config.kv_shape == kept
    assert config.rope_is_interleaved
    assert config.max_context_tokens == 163840
    assert isinstance(config.rope_scaling, YarnRopeScaling)
    assert config.rope_scaling.mscale_all_dim == 0.707


def test_v2_with_groups() -> None:
    values = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}
    mixture = mixture_of(V2, **{**V2_LITE, **values, "routed_scaling_factor": 16.0})
    assert (mixture.num_groups, mixture.num_chosen_groups) == (4, 2)
    assert mixture.group_score is GroupScore.BEST
    assert mixture.scaling_factor == 16.0


def test_groups_of_v2_count_only_where_the_method_says_so() -> None:
    assert mixture_of(V2, **{**V2_LITE, "n_group": 4, "topk_group": 2}).num_groups == 1


def test_v3_chooses_by_sigmoids_with_a_bias() -> None:
    config = config_of(V3, scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1)
    mixture = config.mixture
    assert mixture is not None and config.latent is not None
    assert mixture.score is RouterScore.SIGMOID
    assert mixture.has_score_bias
    assert mixture.group_score is GroupScore.BEST_TWO
    assert (mixture.num_experts, mixture.num_groups, mixture.num_chosen_groups) == (256, 8, 4)
    assert mixture.dense_layers == {0, 1, 2}
    assert (config.latent.query_rank, config.head_dim) == (1536, 192)
    assert config.num_prediction_layers == 1


def test_no_shared_experts_are_none() -> None:
    assert mixture_of(V3, n_shared_experts=None).shared_size == 0


@pytest.mark.parametrize(
    ("architecture", "values", "named"),
    [
        (V2, {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
        (V2, {"scoring_func": "sigmoid"}, "scoring_func 'sigmoid'"),
        (V2, {"norm_topk_prob": True}, "norm_topk_prob"),
        (V2, {"attention_bias": True}, "attention_bias True"),
        (V2, {"mlp_bias": True}, "mlp_bias True"),
        (V3, {"moe_layer_freq": 2}, "moe_layer_freq 2"),
        (V3, {"topk_method": "greedy"}, "topk_method 'greedy'"),
        (V3, {"scoring_func": "softmax"}, "scoring_func 'softmax'"),
        (V3, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type; supported"),
        (MIXTRAL, {"hidden_act": "gelu_pytorch_tanh"}, "gated by gelu_tanh"),
        (QWEN3, {"hidden_act": "relu"}, "hidden_act 'relu'"),
    ],
)
def test_an_option_that_is_not_run_is_refused_by_name(
    architecture: str, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        config_of(architecture, **values)


@pytest.mark.parametrize(
    ("architecture", "values", "named"),
    [
        (MIXTRAL, {"num_local_experts": 0}, "num_experts is 0"),
        (MIXTRAL, {"num_local_experts": 1 << 40}, "num_experts is"),
        (MIXTRAL, {"num_local_experts": 4, "num_experts": 8}, "differ"),
        (MIXTRAL, {"num_experts_per_tok": 9}, "num_experts_per_token is 9; allowed: 1 to 8"),
        (MIXTRAL, {"num_hidden_layers": 10**12}, "num_layers is"),
        (QWEN3, {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        (QWEN3, {"mlp_only_layers": ["1"]}, "a list of integers"),
        (QWEN3, {"moe_intermediate_size": -1}, "expert_size is -1"),
        (V2, {"num_experts_per_tok": None}, "lacks 'num_experts_per_tok'"),
        (V2, {"topk_method": "group_limited_greedy"}, "lacks 'n_group'"),
        (V3, {"n_group": 7}, "256 experts do not make 7 equal groups"),
        (V3, {"n_group": 0}, "num_groups is 0"),
        (V3, {"n_group": 256, "topk_group": 8}, "groups of 1 expert"),
        (V3, {"topk_group": 9}, "num_chosen_groups is 9"),
        (V3, {"num_experts_per_tok": 129}, "num_experts_per_token is 129; allowed: 1 to 128"),
        (V3, {"kv_lora_rank": 0}, "kv_rank is 0"),
        (V3, {"qk_rope_head_dim": 7}, "rope_dim is 7"),
        (V3, {"v_head_dim": 1 << 20}, "value_dim is"),
        (V3, {"routed_scaling_factor": float("inf")}, "scaling_factor is inf"),
    ],
)
def test_a_value_that_cannot_be_is_a_bad_checkpoint(
    architecture: str, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadCheckpoint, match=named):
        config_of(architecture, **values)


@pytest.mark.parametrize("value", [None, -1, 0, 10**30, 1.5, "x", [], {}, True, float("nan")])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_any_value_is_read_or_refused(architecture: str, value: object) -> None:
    for key in written(architecture):
        if key == "architectures":
            continue
        try:
            config_of(architecture, **{key: value})
        except ModelError as error:
            assert str(error)
