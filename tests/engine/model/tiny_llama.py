"""Random Llama checkpoints of a few thousand parameters, and batches over a small pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from cluster.models.card import (
    CheckpointFormat,
    DecoderConfig,
    Llama3RopeScaling,
    ModelCard,
)
from engine.model.ragged_batch import RaggedBatch

BLOCK_SIZE = 4


def tiny_config(**changes: Any) -> transformers.LlamaConfig:
    """Grouped queries, a head size that is not hidden / heads, values that leave no symmetry."""
    values: dict[str, Any] = {
        "vocab_size": 61,
        "hidden_size": 96,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
    }
    return transformers.LlamaConfig(**{**values, **changes})


def llama3_rope() -> dict[str, Any]:
    """The scaling of Llama 3.1 with boundaries inside a tiny context."""
    return {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }


def random_model(config: transformers.LlamaConfig, seed: int = 0) -> transformers.LlamaForCausalLM:
    """Weights in float32; norms and biases are random too."""
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:
            parameter.data.uniform_(0.5, 1.5)
    return model


def saved_card(model: transformers.LlamaForCausalLM, folder: Path, **save: Any) -> ModelCard:
    """Saves as safetensors and describes it."""
    model.save_pretrained(folder, **save)
    files = tuple(sorted(folder.glob("*.safetensors")))
    return card_of(model.config, files, folder, CheckpointFormat.SAFETENSORS, "LlamaForCausalLM")


def card_of(
    config: transformers.LlamaConfig,
    files: tuple[Path, ...],
    metadata_path: Path,
    format: CheckpointFormat,
    architecture: str,
) -> ModelCard:
    """A card as the model store would make it."""
    return ModelCard(
        name="tiny",
        source=str(metadata_path),
        format=format,
        weight_files=files,
        metadata_path=metadata_path,
        architecture=architecture,
        config=decoder_config(config),
        checkpoint_dtype="float32",
        weights_digest="00",
        tokenizer_digest="00",
        eos_token_ids=(2,),
        bos_token_id=1,
        weight_bytes=sum(path.stat().st_size for path in files),
    )


def decoder_config(config: transformers.LlamaConfig) -> DecoderConfig:
    """The same shape in our words."""
    rope = config.rope_parameters
    scaling = None
    if rope["rope_type"] == "llama3":
        scaling = Llama3RopeScaling(
            factor=rope["factor"],
            low_freq_factor=rope["low_freq_factor"],
            high_freq_factor=rope["high_freq_factor"],
            original_max_context_tokens=rope["original_max_position_embeddings"],
        )
    return DecoderConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=rope["rope_theta"],
        rope_scaling=scaling,
        max_context_tokens=config.max_position_embeddings,
        tie_word_embeddings=config.tie_word_embeddings,
        attention_bias=config.attention_bias,
        output_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
    )


def ragged_batch(
    chunks: list[tuple[list[int], int, list[int]]], *, block_size: int = BLOCK_SIZE
) -> RaggedBatch:
    """From (new tokens, tokens before them, block ids) per sequence, decodes first.

    The logits of every row are wanted.
    """
    tokens, positions, slots, starts, lens = [], [], [], [0], []
    for new, before, blocks in chunks:
        tokens += new
        places = range(before, before + len(new))
        positions += places
        slots += [blocks[p // block_size] * block_size + p % block_size for p in places]
        starts.append(starts[-1] + len(new))
        lens.append(before + len(new))
    width = max(len(blocks) for _, _, blocks in chunks)
    tables = [blocks + [0] * (width - len(blocks)) for _, _, blocks in chunks]
    query_lens = [len(new) for new, _, _ in chunks]
    return RaggedBatch(
        token_ids=torch.tensor(tokens),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        query_starts=torch.tensor(starts, dtype=torch.int32),
        context_lens=torch.tensor(lens, dtype=torch.int32),
        block_tables=torch.tensor(tables, dtype=torch.int32),
        logit_rows=torch.arange(len(tokens)),
        num_decodes=next((i for i, n in enumerate(query_lens) if n > 1), len(query_lens)),
        max_query_len=max(query_lens),
        max_context_len=max(lens),
    )
