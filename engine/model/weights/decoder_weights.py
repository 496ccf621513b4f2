"""The weights of a rank's decoder, layer by layer, fused as the decoder multiplies them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from cluster.errors import BadCheckpoint
from cluster.models.card import DecoderConfig, ModelCard
from cluster.models.expert_placement import ExpertPlacement
from cluster.models.model_split import ModelSplit
from cluster.models.tensors import (
    ATTENTION_POST_NORM,
    EMBEDDING,
    FEED_FORWARD_POST_NORM,
    FINAL_NORM,
    INPUT_NORM,
    LM_HEAD,
    ROPE_DIVISORS,
    SCORE_HEAD,
    expected_shapes,
    feed_forward_norm,
    is_prediction_layer,
    layer_prefix,
)
from engine.contract.weight_format import WeightFormat
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.latent_weights import LatentWeights, latent_weights
from engine.model.weights.mixture_weights import (
    MixtureWeights,
    RoutedWeights,
    mixture_weights,
    routed_weights,
)
from engine.model.weights.open_checkpoint import open_checkpoint
from engine.model.weights.weight_reader import WeightReader
from kernels.weights import Weight

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_IGNORED_SUFFIX = "rotary_emb.inv_freq"  # old checkpoints store what the config implies


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """Of grouped-query attention, a rank's heads. Matrices are [out, in], norms float32 with their
    offset."""

    qkv: Weight  # [(num_heads + 2 * num_kv_heads) * head_dim, hidden]
    qkv_bias: torch.Tensor | None
    o: Weight  # [hidden, num_heads * head_dim]
    o_bias: torch.Tensor | None
    query_norm: torch.Tensor | None  # [head_dim]
    key_norm: torch.Tensor | None  # [head_dim]


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpWeights:
    """Of a gated feed-forward."""

    gate_up: Weight  # [2 * intermediate, hidden]
    gate_up_bias: torch.Tensor | None
    down: Weight  # [hidden, intermediate]
    down_bias: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One decoder layer. Norms are float32 [hidden], with their offset."""

    input_norm: torch.Tensor
    attention: AttentionWeights | LatentWeights
    attention_post_norm: torch.Tensor | None
    """Of attention's output, before it is added (Gemma 3)."""
    feed_forward_norm: torch.Tensor
    """Of the residual, before the feed-forward."""
    feed_forward: MlpWeights | MixtureWeights
    feed_forward_post_norm: torch.Tensor | None


class DecoderWeights:
    """Reads tensors when they are asked for, so that one layer at a time is held twice.

    Opening checks names and shapes of all tensors. Raises UnsupportedModel or BadCheckpoint.
    """

    def __init__(
        self,
        card: ModelCard,
        dtype: torch.dtype,
        device: torch.device,
        form: WeightFormat = WeightFormat.FULL,
        *,
        split: ModelSplit | None = None,
    ) -> None:
        """Of a rank's `split` only its part is read; `fitted_split` has fitted it to `form`."""
        self.split = ModelSplit(config=card.config) if split is None else split
        self.config = self.split.config
        self.dtype, self.device = dtype, device
        self.reopen = functools.partial(DecoderWeights, card, dtype, device, form, split=self.split)
        """The same again, for experts that move; holds no file open."""
        self._checkpoint = open_checkpoint(card)
        check_tensors(self._checkpoint, self.config)
        self._reader = WeightReader(self._checkpoint, form, self.split, dtype=dtype, device=device)

    def embedding(self) -> Weight:
        """[vocab, hidden]; of a rank its tokens', [vocab_height, hidden]."""
        return self._reader.end(EMBEDDING)

    def lm_head(self) -> Weight | None:
        """As the embedding; None when it is the embedding."""
        return None if self.config.tie_word_embeddings else self._reader.end(LM_HEAD)

    def final_norm(self) -> torch.Tensor:
        """Float32 [hidden], with its offset."""
        return self._norm(FINAL_NORM)

    def rope_divisors(self) -> torch.Tensor | None:
        """float32 [head_dim / 2] on the CPU: what divides the inverse frequencies, if stored."""
        if ROPE_DIVISORS not in self._checkpoint.names():
            return None
        return self._checkpoint.read(ROPE_DIVISORS).float()

    def layer(self, index: int) -> LayerWeights:
        """The weights of one layer."""
        prefix, has_post_norms = layer_prefix(index), self.config.has_post_norms
        return LayerWeights(
            input_norm=self._norm(prefix + INPUT_NORM),
            attention=self._attention(prefix + "self_attn."),
            attention_post_norm=self._norm_if(has_post_norms, prefix + ATTENTION_POST_NORM),
            feed_forward_norm=self._norm(prefix + feed_forward_norm(self.config)),
            feed_forward=self._feed_forward(index),
            feed_forward_post_norm=self._norm_if(has_post_norms, prefix + FEED_FORWARD_POST_NORM),
        )

    def experts(
        self, index: int, placement: ExpertPlacement, experts: Sequence[int]
    ) -> RoutedWeights:
        """Of these experts of a layer, which this rank has by that placement; read when they are
        asked for, by any thread while no other reads."""
        reader = self._reader.of(replace(self.split, placement=placement))
        return routed_weights(reader, index, experts)

    def _feed_forward(self, index: int) -> MlpWeights | MixtureWeights:
        mixture = self.config.mixture
        if mixture is None or index in mixture.dense_layers:
            return self._mlp(layer_prefix(index) + "mlp.")
        return mixture_weights(self._reader, index, mixture)

    def _attention(self, prefix: str) -> AttentionWeights | LatentWeights:
        config, has_qk_norm = self.config, self.config.has_qk_norm
        if config.latent is not None:
            return latent_weights(self._reader, prefix, config, config.latent)
        return AttentionWeights(
            qkv=self._matrices(prefix, ("q", "k", "v")),
            qkv_bias=self._biases(prefix, ("q", "k", "v")) if config.attention_bias else None,
            o=self._reader.matrix(f"{prefix}o_proj.weight"),
            o_bias=self._biases(prefix, ("o",)) if config.output_bias else None,
            query_norm=self._norm_if(has_qk_norm, f"{prefix}q_norm.weight"),
            key_norm=self._norm_if(has_qk_norm, f"{prefix}k_norm.weight"),
        )

    def _mlp(self, prefix: str) -> MlpWeights:
        has_bias = self.config.mlp_bias
        return MlpWeights(
            gate_up=self._matrices(prefix, ("gate", "up")),
            gate_up_bias=self._biases(prefix, ("gate", "up")) if has_bias else None,
            down=self._reader.matrix(f"{prefix}down_proj.weight"),
            down_bias=self._biases(prefix, ("down",)) if has_bias else None,
        )

    def _matrices(self, prefix: str, names: tuple[str, ...]) -> Weight:
        """Matrices on the same input, one below the other."""
        return self._reader.matrix(*(f"{prefix}{name}_proj.weight" for name in names))

    def _biases(self, prefix: str, names: tuple[str, ...]) -> torch.Tensor | None:
        return self._reader.biases(*(f"{prefix}{name}_proj.bias" for name in names))

    def _norm_if(self, is_there: bool, name: str) -> torch.Tensor | None:
        return self._norm(name) if is_there else None

    def _norm(self, name: str) -> torch.Tensor:
        return self._reader.exact(name) + self.config.norm_offset


def check_tensors(checkpoint: Checkpoint, config: DecoderConfig) -> None:
    """Raises BadCheckpoint naming the first tensor that is missing, extra or of a wrong shape."""
    expected, found = expected_shapes(config), checkpoint.names()
    for name, shape in expected.items():
        if name not in found:
            raise BadCheckpoint(f"the checkpoint lacks {name}; download the model again")
        if checkpoint.shape(name) != shape:
            raise BadCheckpoint(
                f"{name} has shape {checkpoint.shape(name)}; the model's configuration says {shape}"
            )
    # some files of tied models repeat the embedding
    optional = {ROPE_DIVISORS, LM_HEAD, SCORE_HEAD}
    unused = found - expected.keys() - optional
    extra = sorted(
        name
        for name in unused
        if not (name.endswith(_IGNORED_SUFFIX) or is_prediction_layer(name, config))
    )
    if extra:
        raise BadCheckpoint(
            f"the checkpoint has {len(extra)} tensor(s) that a decoder of this configuration "
            f"does not use, such as {extra[0]}; the file and its configuration do not fit together"
        )
