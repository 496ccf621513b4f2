"""What is known of a model before any weight is read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class CheckpointFormat(enum.StrEnum):
    """How the weights are stored."""

    GGUF = "gguf"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3RopeScaling:
    """The frequency scaling of Llama 3.1 and later ("rope_type": "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The shape of a Llama-family decoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3RopeScaling | None
    max_context_tokens: int
    tie_word_embeddings: bool
    attention_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model in the cache, or in a folder of the user's."""

    name: str
    """What clients call it by default."""
    source: str
    """As the user wrote it."""
    format: CheckpointFormat
    weight_files: tuple[Path, ...]
    """One .gguf, or the .safetensors shards."""
    metadata_path: Path
    """The .gguf file, or the folder with config.json, tokenizer.json and the rest."""
    architecture: str
    """The checkpoint's own word: "llama", "LlamaForCausalLM", "MistralForCausalLM"."""
    config: DecoderConfig
    checkpoint_dtype: str
    """"float32", "float16", "bfloat16", or a GGUF quantization such as "Q4_1"."""
    weights_digest: str
    """Hex SHA-256 of the weight files' contents (cached beside them); equal means equal weights."""
    tokenizer_digest: str
    """Hex SHA-256 of the tokenizer and the chat template."""
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    weight_bytes: int
    """Size of the weight files."""
    notes: tuple[str, ...] = ()
    """What a user should know, in sentences: for example a context that was cut to a window."""
