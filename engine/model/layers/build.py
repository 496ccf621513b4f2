"""A layer from its weights: the one place that knows which variant a configuration asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.model.adapters.bank import NO_ADAPTERS, AdapterBank, LayerAdapters
from engine.model.expert_picks import ExpertPicks
from engine.model.layers.attention import Attention
from engine.model.layers.decoder_layer import DecoderLayer
from engine.model.layers.feed_forward import FeedForward, GatedMlp
from engine.model.layers.grouped_query_attention import GroupedQueryAttention
from engine.model.layers.latent_attention import build_latent_attention
from engine.model.layers.mixture import build_experts, build_mixture
from engine.model.layers.post_norm import NormedAttention, NormedFeedForward, PostNorm
from engine.model.layers.qk_norm import QkNorm
from engine.model.layers.rope_table import RopeTables
from engine.model.weights.decoder_weights import AttentionWeights, LayerWeights, MlpWeights
from engine.model.weights.latent_weights import LatentWeights
from engine.model.weights.mixture_weights import MixtureWeights
from kernels.gated_mul import GateActivation
from kernels.placed_experts import ExpertGroups, PlacedExperts
from kernels.tape.kernel_set import KernelSet
from kernels.tape.rows import QkvHeads


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBuilder:
    """Makes the layers of a rank's decoder. Takes weights over; the caller keeps no reference."""

    split: ModelSplit
    kernels: KernelSet
    rope: RopeTables
    picks: ExpertPicks | None = None
    """Of all layers, to be counted up; None: nobody asks."""
    bank: AdapterBank | None = None
    """None: adapters add to nothing."""
    experts: dict[int, PlacedExperts] = field(default_factory=dict)
    """By layer, those that were built."""

    @property
    def config(self) -> DecoderConfig:
        """Of the whole model."""
        return self.split.config

    def layer(self, index: int, weights: LayerWeights) -> DecoderLayer:
        """The layer at `index`, counted from the embedding."""
        return DecoderLayer(
            input_norm=weights.input_norm,
            attention=self._attention(index, weights),
            feed_forward_norm=weights.feed_forward_norm,
            feed_forward=self._feed_forward(index, weights),
        )

    def _attention(self, index: int, weights: LayerWeights) -> Attention:
        attention = self._bare_attention(index, weights.attention)
        norm = weights.attention_post_norm
        return attention if norm is None else NormedAttention(attention, self._post_norm(norm))

    def _feed_forward(self, index: int, weights: LayerWeights) -> FeedForward:
        feed_forward = self._bare_feed_forward(index, weights.feed_forward)
        norm = weights.feed_forward_post_norm
        if norm is None:
            return feed_forward
        return NormedFeedForward(feed_forward, self._post_norm(norm))

    def _bare_attention(self, index: int, weights: AttentionWeights | LatentWeights) -> Attention:
        if isinstance(weights, AttentionWeights):
            return self._grouped_query_attention(index, weights)
        return build_latent_attention(self.kernels, weights, self.split, self.rope.plain)

    def _bare_feed_forward(self, index: int, weights: MlpWeights | MixtureWeights) -> FeedForward:
        if isinstance(weights, MlpWeights):
            return self._mlp(index, weights)
        assert self.config.mixture is not None
        split, picks = self.split, None if self.picks is None else self.picks.of_layer(index)
        groups = ExpertGroups(
            of_experts=torch.tensor(split.expert_placement.groups, device=weights.router.device),
            own=split.expert_group,
            sharers=split.sharers,
        )
        self.experts[index] = experts = build_experts(self.kernels, weights.routed, groups)
        return build_mixture(self.kernels, weights, self.config.mixture, experts, picks)

    def _grouped_query_attention(
        self, index: int, weights: AttentionWeights
    ) -> GroupedQueryAttention:
        config, scale = self.config, self.config.attention_scale
        window = config.window
        is_windowed = window is not None and index in window.layers
        adapters = self._adapters(index)
        return GroupedQueryAttention(
            qkv=self.kernels.pack_linear(weights.qkv, weights.qkv_bias),
            o=self.kernels.pack_linear(weights.o, weights.o_bias),
            heads=self._heads(),
            cos_sin=self.rope.windowed if is_windowed else self.rope.plain,
            scale=config.head_dim**-0.5 if scale is None else scale,
            window=window.num_tokens if window is not None and is_windowed else None,
            qk_norm=self._qk_norm(weights),
            qkv_adapters=adapters.qkv,
            o_adapters=adapters.output,
        )

    def _adapters(self, index: int) -> LayerAdapters:
        return NO_ADAPTERS if self.bank is None else self.bank.layers[index]

    def _qk_norm(self, weights: AttentionWeights) -> QkNorm | None:
        if weights.query_norm is None or weights.key_norm is None:
            return None
        return QkNorm(
            query_weight=weights.query_norm,
            key_weight=weights.key_norm,
            eps=self.config.rms_norm_eps,
        )

    def _heads(self) -> QkvHeads:
        """Of the rank."""
        return QkvHeads(
            num_heads=len(self.split.heads),
            num_kv_heads=len(self.split.kv_heads),
            head_dim=self.config.head_dim,
        )

    def _mlp(self, index: int, weights: MlpWeights) -> GatedMlp:
        adapters = self._adapters(index)
        return GatedMlp(
            self.kernels.pack_linear(weights.gate_up, weights.gate_up_bias),
            self.kernels.pack_linear(weights.down, weights.down_bias),
            GateActivation(self.config.activation.value),
            adapters.gate_up,
            adapters.down,
        )

    def _post_norm(self, weight: torch.Tensor) -> PostNorm:
        return PostNorm(weight=weight, eps=self.config.rms_norm_eps)
