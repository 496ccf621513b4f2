"""The weights of a model's own layer that predicts further tokens, in the form of the model's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from cluster.errors import BadCheckpoint
from cluster.models.card import DecoderConfig, ModelCard
from cluster.models.heads.prediction import (
    EMBEDDING,
    FINAL_NORM,
    JOIN,
    LM_HEAD,
    STATE_NORM,
    TOKEN_NORM,
    optional_shapes,
    prediction_shapes,
    with_prediction_layer,
)
from cluster.models.model_split import ModelSplit
from cluster.models.tensors import INPUT_NORM, feed_forward_norm, layer_prefix
from engine.contract.weight_format import WeightFormat
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.decoder_weights import LayerWeights
from engine.model.weights.latent_weights import latent_weights
from engine.model.weights.mixture_weights import mixture_weights
from engine.model.weights.open_checkpoint import open_checkpoint
from engine.model.weights.weight_reader import WeightReader


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionWeights:
    """Norms are float32 [hidden]."""

    layer: LayerWeights
    token_norm: torch.Tensor
    state_norm: torch.Tensor
    join: torch.Tensor  # [hidden, 2 * hidden], of the replica's dtype
    final_norm: torch.Tensor
    embedding: torch.Tensor | None  # [vocab, hidden]; None: the model's
    lm_head: torch.Tensor | None  # as the embedding


def read_prediction_layer(
    card: ModelCard, dtype: torch.dtype, device: torch.device, form: WeightFormat
) -> PredictionWeights:
    """The first, whole. Raises BadCheckpoint with the name of a tensor that is missing or of a
    wrong shape, and for a model whose layers have no latents or no mixture."""
    config = with_prediction_layer(card.config)
    checkpoint = open_checkpoint(replace(card, config=config))
    if (why := _why_unfit(checkpoint, card.config)) is not None:
        raise BadCheckpoint(
            f"{why}; its layer that predicts further tokens cannot be had: choose --speculation "
            "auto or off"
        )
    split = ModelSplit(config=config)
    reader = WeightReader(checkpoint, form, split, dtype=dtype, device=device)
    own = _OwnTensors(checkpoint, layer_prefix(card.config.num_layers), dtype, device)
    return PredictionWeights(
        layer=_layer(reader, config, own.prefix),
        token_norm=own.norm(TOKEN_NORM),
        state_norm=own.norm(STATE_NORM),
        join=own.matrix(JOIN),
        final_norm=own.norm(FINAL_NORM),
        embedding=own.matrix(EMBEDDING) if own.has(EMBEDDING) else None,
        lm_head=own.matrix(LM_HEAD) if own.has(LM_HEAD) else None,
    )


def why_unfit(card: ModelCard) -> str | None:
    """What the checkpoint lacks for such a layer, or has in a wrong shape; None: nothing. No tensor
    is read."""
    checkpoint = open_checkpoint(replace(card, config=with_prediction_layer(card.config)))
    return _why_unfit(checkpoint, card.config)


@dataclass(frozen=True, slots=True)
class _OwnTensors:
    """Those that no other layer has: none is quantized."""

    checkpoint: Checkpoint
    prefix: str
    dtype: torch.dtype
    device: torch.device

    def has(self, name: str) -> bool:
        return self.prefix + name in self.checkpoint.names()

    def matrix(self, name: str) -> torch.Tensor:
        return self.checkpoint.read(self.prefix + name).to(self.device, self.dtype)

    def norm(self, name: str) -> torch.Tensor:
        return self.checkpoint.read(self.prefix + name).to(self.device, torch.float32)


def _layer(reader: WeightReader, config: DecoderConfig, prefix: str) -> LayerWeights:
    assert config.latent is not None and config.mixture is not None, "DeepSeek-V3 has both"
    index = config.num_layers - 1
    return LayerWeights(
        input_norm=reader.exact(prefix + INPUT_NORM),
        attention=latent_weights(reader, f"{prefix}self_attn.", config, config.latent),
        attention_post_norm=None,
        feed_forward_norm=reader.exact(prefix + feed_forward_norm(config)),
        feed_forward=mixture_weights(reader, index, config.mixture),
        feed_forward_post_norm=None,
    )


def _why_unfit(checkpoint: Checkpoint, config: DecoderConfig) -> str | None:
    """What else the checkpoint has the decoder's own reader has checked."""
    needed, found = prediction_shapes(config), checkpoint.names()
    if missing := needed.keys() - found:
        return f"the checkpoint lacks {min(missing)}"
    for name, shape in (needed | optional_shapes(config)).items():
        if name in found and (stored := checkpoint.shape(name)) != shape:
            return f"{name} has shape {stored} in the checkpoint, and {shape} by its configuration"
    return None
