"""A layer from its weights: the one place that knows which variant a configuration asks for."""

from __future__ import annotations

import torch

from cluster.models.card import DecoderConfig
from engine.layers.decoder_layer import DecoderLayer
from engine.layers.feed_forward import GatedMlp
from engine.layers.grouped_query_attention import GroupedQueryAttention
from engine.weights.llama_weights import LayerWeights
from kernels.dispatch import KernelSet


def build_layer(
    weights: LayerWeights, config: DecoderConfig, kernels: KernelSet, cos_sin: torch.Tensor
) -> DecoderLayer:
    """Takes the weights over; the caller keeps no reference."""
    scale = config.attention_scale
    return DecoderLayer(
        input_norm=weights.input_norm.float(),
        attention=GroupedQueryAttention(
            kernels=kernels,
            qkv=kernels.pack_linear(weights.qkv, weights.qkv_bias),
            o=kernels.pack_linear(weights.o, weights.o_bias),
            cos_sin=cos_sin,
            scale=config.head_dim**-0.5 if scale is None else scale,
        ),
        post_attention_norm=weights.post_attention_norm.float(),
        feed_forward=GatedMlp(
            kernels.pack_linear(weights.gate_up, weights.gate_up_bias),
            kernels.pack_linear(weights.down, weights.down_bias),
            kernels.silu_mul,
        ),
    )
