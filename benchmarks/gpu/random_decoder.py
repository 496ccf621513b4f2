"""Decoders of the shapes that people serve, with random weights made where they are used."""

from __future__ import annotations

from typing import cast

import torch

from cluster.home import kernels_folder
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.model.decoder import Decoder
from engine.model.weights.decoder_weights import (
    AttentionWeights,
    DecoderWeights,
    LayerWeights,
    MlpWeights,
)
from kernels.dispatch.kernel_sets import kernels_for


def llama_1b(max_context_tokens: int = 8192) -> DecoderConfig:
    """Llama 3.2 1B."""
    return _llama(16, 2048, 8192, head_dim=64, ties=True, context=max_context_tokens)


def llama_8b(max_context_tokens: int = 8192) -> DecoderConfig:
    """Llama 3.1 8B."""
    return _llama(32, 4096, 14336, head_dim=128, ties=False, context=max_context_tokens)


def _llama(
    num_layers: int, hidden: int, inner: int, *, head_dim: int, ties: bool, context: int
) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=128_256,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=num_layers,
        num_heads=32,
        num_kv_heads=8,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        rope_scaling=None,
        max_context_tokens=context,
        tie_word_embeddings=ties,
    )


def random_decoder(config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> Decoder:
    """On the device's own kernels."""
    weights = cast(DecoderWeights, RandomDecoderWeights(config, dtype, device))
    with torch.inference_mode():
        return Decoder(weights, kernels_for(device, kernels_folder()))


class RandomDecoderWeights:
    """As much of DecoderWeights as a decoder asks for: plain attention, plain feed-forwards."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> None:
        self.config, self.dtype, self.device = config, dtype, device
        self.split = ModelSplit(config=config)

    def embedding(self) -> torch.Tensor:
        """[vocab, hidden]."""
        return self._matrix(self.config.vocab_size, self.config.hidden_size)

    def lm_head(self) -> torch.Tensor | None:
        """[vocab, hidden]; None when it is the embedding."""
        return None if self.config.tie_word_embeddings else self.embedding()

    def final_norm(self) -> torch.Tensor:
        """float32 [hidden]."""
        return torch.ones(self.config.hidden_size, device=self.device)

    def rope_divisors(self) -> torch.Tensor | None:
        """None are stored."""
        return None

    def layer(self, index: int) -> LayerWeights:
        """Another draw for every layer."""
        config, hidden = self.config, self.config.hidden_size
        query = config.num_heads * config.head_dim
        both = query + 2 * config.num_kv_heads * config.head_dim
        return LayerWeights(
            input_norm=self.final_norm(),
            attention=AttentionWeights(
                qkv=self._matrix(both, hidden),
                qkv_bias=None,
                o=self._matrix(hidden, query),
                o_bias=None,
                query_norm=None,
                key_norm=None,
            ),
            attention_post_norm=None,
            feed_forward_norm=self.final_norm(),
            feed_forward=MlpWeights(
                gate_up=self._matrix(2 * config.intermediate_size, hidden),
                gate_up_bias=None,
                down=self._matrix(hidden, config.intermediate_size),
                down_bias=None,
            ),
            feed_forward_post_norm=None,
        )

    def _matrix(self, outputs: int, inputs: int) -> torch.Tensor:
        values = torch.randn(outputs, inputs, dtype=self.dtype, device=self.device)
        return values.mul_(inputs**-0.5)
