"""Configurations of models that people serve, for tests of shapes alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cluster.models.card import (
    CheckpointFormat,
    DecoderConfig,
    GroupScore,
    LatentConfig,
    MixtureConfig,
    ModelCard,
    QuantizationConfig,
    RouterScore,
)

SMOLLM2 = DecoderConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    rms_norm_eps=1e-5,
    rope_theta=1e5,
    rope_scaling=None,
    max_context_tokens=8192,
    tie_word_embeddings=True,
)
LLAMA_3_70B = replace(
    SMOLLM2,
    vocab_size=128256,
    hidden_size=8192,
    intermediate_size=28672,
    num_layers=80,
    num_heads=64,
    num_kv_heads=8,
    head_dim=128,
    tie_word_embeddings=False,
)
DEEPSEEK_V3 = replace(
    SMOLLM2,
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    num_layers=61,
    num_heads=128,
    num_kv_heads=128,
    head_dim=192,
    tie_word_embeddings=False,
    rope_is_interleaved=True,
    latent=LatentConfig(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128),
    mixture=MixtureConfig(
        num_experts=256,
        num_experts_per_token=8,
        expert_size=2048,
        shared_size=2048,
        dense_layers=frozenset({0, 1, 2}),
        score=RouterScore.SIGMOID,
        scaling_factor=2.5,
        has_score_bias=True,
        num_groups=8,
        num_chosen_groups=4,
        group_score=GroupScore.BEST_TWO,
    ),
)


def card_of(config: DecoderConfig, quantization: QuantizationConfig | None = None) -> ModelCard:
    """Of files that nobody has."""
    return ModelCard(
        name="large",
        source="large",
        format=CheckpointFormat.SAFETENSORS,
        weight_files=(),
        metadata_path=Path("large"),
        architecture="LlamaForCausalLM",
        config=config,
        checkpoint_dtype="bfloat16",
        weights_digest="",
        tokenizer_digest="",
        eos_token_ids=(),
        bos_token_id=None,
        weight_bytes=0,
        quantization=quantization,
    )
