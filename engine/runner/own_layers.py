"""The served model's own layer that predicts further tokens, as a head beside it.

Of a group of ranks the first has it, whole. Its experts are as many as a layer's of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from cluster.errors import ConfigError
from cluster.models.card import DecoderConfig, ModelCard
from cluster.models.footprint import held_parameters, workspace_bytes
from cluster.models.heads.prediction import with_prediction_layer
from cluster.models.model_split import ModelSplit
from engine.contract.head_in_blocks import HeadInBlocks, head_in_blocks
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import QUANTIZED_DTYPES, KvLayout
from engine.memory.memory_request import BesideNeeds
from engine.model.decoder import Decoder
from engine.model.prediction_head import Ends, PredictionHead
from engine.model.weights.decoder_weights import DTYPES
from engine.model.weights.prediction_weights import read_prediction_layer
from engine.runner.gpu_formats import weights_on
from engine.runner.loaded_heads import (
    LoadedHeads,
    check_place,
    whole_embedding,
    whole_lm_head,
)
from engine.runner.portion import Portion

_WHAT = "the model's own layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLayerSize:
    """What it takes, before it is loaded: see HeadsSize."""

    target: ModelCard
    dtype: str
    weights: WeightFormat
    layout: KvLayout
    max_batch_tokens: int
    room: HeadInBlocks | None
    """In the target's blocks."""

    @classmethod
    def of(cls, spec: EngineSpec, portion: Portion, device: torch.device) -> OwnLayerSize | None:
        """None: another rank has it. Raises ConfigError where it could not be used."""
        check_place(_WHAT, portion, device)
        config = spec.card.config
        if not config.num_prediction_layers or config.latent is None or config.mixture is None:
            raise ConfigError(
                f"speculation is heads, and {spec.card.name} has no layers that predict further "
                "tokens; choose auto, off, ngram, a smaller model or an EAGLE-3 checkpoint",
                param="speculation",
            )
        if portion.rank.index:
            return None
        kv_dtype = QUANTIZED_DTYPES.get(spec.kv, DTYPES[spec.dtype])
        one_layer = replace(config, num_layers=1)
        return cls(
            target=spec.card,
            dtype=spec.dtype,
            weights=spec.weights if device.type == "cpu" else weights_on(device, spec),
            layout=KvLayout.of(one_layer, spec.options.block_size_tokens, kv_dtype),
            max_batch_tokens=spec.options.max_batch_tokens,
            room=head_in_blocks(spec),
        )

    @property
    def layers_read(self) -> tuple[int, ...]:
        """What comes behind the last norm: see Decoder."""
        return (self.target.config.num_layers,)

    @property
    def needs(self) -> BesideNeeds:
        """Of the memory that the target's plan is about."""
        whole, item = self._config, DTYPES[self.dtype].itemsize
        values = held_parameters(ModelSplit(config=whole)).total
        values -= held_parameters(ModelSplit(config=self.target.config)).total
        joined = 2 * whole.hidden_size**2
        split = ModelSplit(config=whole)
        return BesideNeeds(
            weight_bytes=(values + joined) * item,
            workspace_bytes=workspace_bytes(
                split, dtype=self.dtype, max_batch_tokens=self.max_batch_tokens
            ),
            block_bytes=0 if self.room is not None else self.layout.block_bytes,
        )

    def load(self, decoder: Decoder, *, context_tokens: int) -> LoadedHeads:
        """Beside its target, which has been loaded to leave `layers_read`. Raises BadCheckpoint."""
        target, pack = self.target, decoder.kernels.pack_linear
        weights = read_prediction_layer(target, decoder.dtype, decoder.device, self.weights)
        embedding, lm_head = weights.embedding, weights.lm_head
        ends = Ends(
            whole_embedding(target, decoder) if embedding is None else pack(embedding),
            whole_lm_head(target, decoder) if lm_head is None else pack(lm_head),
        )
        config = replace(self._config, max_context_tokens=context_tokens)
        head = PredictionHead(config, weights, decoder.kernels, ends)
        width = target.config.hidden_size
        return LoadedHeads(f"{target.name}'s own layer", self.layout, head, self.room, width)

    @property
    def _config(self) -> DecoderConfig:
        return with_prediction_layer(self.target.config)
