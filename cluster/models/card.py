"""What is known of a model before any weight is read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cluster.kv_shape import KvShape
from cluster.models.pooling import Pooling


class CheckpointFormat(enum.StrEnum):
    """How the weights are stored."""

    GGUF = "gguf"
    SAFETENSORS = "safetensors"


class Activation(enum.StrEnum):
    """What the gate of a feed-forward goes through."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class RouterScore(enum.StrEnum):
    """How a mixture's router turns logits into scores."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class QuantMethod(enum.StrEnum):
    """Whose layout quantized matrices are stored in."""

    GGUF = "gguf"
    GPTQ = "gptq"
    AWQ = "awq"
    COMPRESSED_TENSORS = "compressed-tensors"
    FP8 = "fp8"


class GroupScore(enum.StrEnum):
    """How a group of experts is ranked by the scores of its members."""

    BEST = "best"
    """DeepSeek-V2: the highest."""
    BEST_TWO = "best_two"
    """DeepSeek-V3: the sum of the two highest."""


class Llama3RopeScaling(msgspec.Struct, frozen=True, kw_only=True, tag="llama3"):
    """The frequency scaling of Llama 3.1 and later ("rope_type": "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_context_tokens: int


class LinearRopeScaling(msgspec.Struct, frozen=True, kw_only=True, tag="linear"):
    """Positions divided by a factor ("rope_type": "linear"; Chen et al., 2023)."""

    factor: float


class YarnRopeScaling(msgspec.Struct, frozen=True, kw_only=True, tag="yarn"):
    """YaRN ("rope_type": "yarn"; Peng et al., 2023), as Qwen and DeepSeek use it."""

    factor: float
    original_max_context_tokens: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """Multiplies cosines and sines; None: follows from `factor`, `mscale` and `mscale_all_dim`."""
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    """Whether the ends of the ramp are rounded to whole dimensions."""


RopeScaling = Llama3RopeScaling | LinearRopeScaling | YarnRopeScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Layers whose tokens see only the last `num_tokens` tokens, themselves among them."""

    num_tokens: int
    layers: frozenset[int]
    rope_theta: float | None = None
    """Of these layers, unscaled (Gemma 3); None: as the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """Routed experts in place of the feed-forward."""

    num_experts: int
    num_experts_per_token: int
    expert_size: int
    """Intermediate size of one routed expert."""
    shared_size: int = 0
    """Intermediate size of the shared experts together; 0: none."""
    dense_layers: frozenset[int] = frozenset()
    """Layers with a plain feed-forward of `intermediate_size`."""
    score: RouterScore = RouterScore.SOFTMAX
    normalizes_weights: bool = True
    """Whether the chosen experts' weights are divided by their sum."""
    scaling_factor: float = 1.0
    """Multiplies the routed experts' weights."""
    has_score_bias: bool = False
    """DeepSeek-V3: a learned bias that counts for the choice, not for the weights."""
    num_groups: int = 1
    num_chosen_groups: int = 1
    group_score: GroupScore = GroupScore.BEST


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig:
    """Multi-head latent attention (DeepSeek-V2): what a token keeps is one latent row.

    `DecoderConfig.head_dim` is then nope_dim + rope_dim, `num_kv_heads` equals `num_heads`.
    """

    query_rank: int | None
    """None: queries are projected directly."""
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    @property
    def row_dim(self) -> int:
        """Values kept per token and layer: the latent, then the rotated shared key."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The shape of a decoder. Defaults are what Llama does."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_context_tokens: int
    tie_word_embeddings: bool
    attention_bias: bool = False
    """Of Q, K and V."""
    output_bias: bool = False
    """Of the projection after attention."""
    mlp_bias: bool = False
    activation: Activation = Activation.SILU
    has_qk_norm: bool = False
    """Qwen 3, Gemma 3: each head of Q and K is normed before it is rotated."""
    has_post_norms: bool = False
    """Gemma 3: a branch is normed once more before it is added to the residual."""
    norm_offset: float = 0.0
    """Added to every stored norm weight (Gemma: 1)."""
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    """Multiplies scores; None: 1 / sqrt(head_dim)."""
    window: WindowConfig | None = None
    rope_is_interleaved: bool = False
    """DeepSeek: rotated pairs are neighbours, not halves of the head."""
    mixture: MixtureConfig | None = None
    latent: LatentConfig | None = None
    num_prediction_layers: int = 0
    """Stored behind the last layer to predict further tokens (DeepSeek-V3); no part of the decoder:
    see heads/prediction.py. The files need not have them."""

    @property
    def kv_shape(self) -> KvShape:
        """What is kept of a token: keys and values of each head, or the one latent."""
        is_latent = self.latent is not None
        return KvShape(
            num_layers=self.num_layers,
            num_planes=1 if is_latent else 2,
            num_kv_heads=1 if is_latent else self.num_kv_heads,
            head_dim=self.head_dim if self.latent is None else self.latent.row_dim,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationConfig:
    """How a checkpoint's matrices are quantized. Which of them are, its tensors' names say."""

    method: QuantMethod
    bits: int
    """Of a value; of most values where matrices differ."""
    group: int | None
    """Inputs that share a scale; None: all of an output's, or the whole matrix's."""
    is_float: bool = False
    """8-bit floats (E4M3), not integers."""
    block: tuple[int, int] | None = None
    """Outputs and inputs that share a scale (DeepSeek-V3: 128 x 128)."""
    zeros_less_one: bool = False
    """GPTQ's first format: zero points are stored less one."""
    is_reordered: bool = False
    """GPTQ's activation order: groups are not runs of inputs, so the matrices are dequantized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model in the cache, or in a folder of the user's."""

    name: str
    """What clients call it by default."""
    source: str
    """As the user wrote it."""
    format: CheckpointFormat
    weight_files: tuple[Path, ...]
    """One .gguf, or the .safetensors shards; empty where only the text side is here (a router)."""
    metadata_path: Path
    """The .gguf file, or the folder with config.json, tokenizer.json and the rest."""
    architecture: str
    """The checkpoint's own word: "llama", "LlamaForCausalLM", "MistralForCausalLM"."""
    config: DecoderConfig
    checkpoint_dtype: str
    """"float32", "float16", "bfloat16", or a GGUF quantization such as "Q4_1"; empty where
    there are no weight files to say it."""
    weights_digest: str
    """Hex SHA-256 of the weight files and, in a folder, of config.json, which says how positions
    turn and what a window is: equal means equal keys and values. Cached."""
    tokenizer_digest: str
    """Hex SHA-256 of the tokenizer and the chat template."""
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    weight_bytes: int
    """Size of the weight files."""
    loaded_bytes: int | None = None
    """Of the weights in their own groups, once loaded; None: as large as the files."""
    quantization: QuantizationConfig | None = None
    """None: every matrix is stored in `checkpoint_dtype`."""
    pooling: Pooling | None = None
    """What the checkpoint is made for in place of text; None: it is made for text."""

    @property
    def stored_bytes(self) -> int:
        """What the weights take in memory in their stored format."""
        return self.weight_bytes if self.loaded_bytes is None else self.loaded_bytes
