"""The tensors of a decoder: their Hugging Face names, the shapes that a config implies, and by what
ranks share them.

The one table of them: what a loader asks for, what a GGUF file must have under its own names
(`gguf/tensor_names.py`), which part a rank holds (`model_split.py`), and what a model takes in
memory (`footprint.py`) all follow from it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cluster.models.card import DecoderConfig
from cluster.models.latent_tensors import latent_tensors
from cluster.models.mixture_tensors import ROUTER, mixture_tensors
from cluster.models.stored_tensor import Share, StoredTensor

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
SCORE_HEAD = "score.weight"
"""[1, hidden]: of a checkpoint that scores; no part of the decoder."""
ROPE_DIVISORS = "rope_divisors"
"""GGUF only (`rope_freqs.weight`): what each inverse frequency is divided by."""
INPUT_NORM = "input_layernorm.weight"
ATTENTION_POST_NORM = "post_attention_layernorm.weight"
FEED_FORWARD_POST_NORM = "post_feedforward_layernorm.weight"


def layer_prefix(index: int) -> str:
    """Of the names of one layer."""
    return f"model.layers.{index}."


def feed_forward_norm(config: DecoderConfig) -> str:
    """The norm before the feed-forward: where branches are normed too, it has a name of its own."""
    return f"{'pre_feedforward' if config.has_post_norms else 'post_attention'}_layernorm.weight"


@functools.lru_cache(maxsize=16)
def expected_tensors(config: DecoderConfig) -> Mapping[str, StoredTensor]:
    """Every tensor that must be there. The head is listed only when it is not tied."""
    ends = StoredTensor(shape=(config.vocab_size, config.hidden_size), share=Share.TOKENS)
    tensors = {EMBEDDING: ends, FINAL_NORM: StoredTensor(shape=(config.hidden_size,))}
    if not config.tie_word_embeddings:
        tensors[LM_HEAD] = ends
    for index in range(config.num_layers):
        parts = _norms(config) | _attention_of(config) | _feed_forward_of(config, index)
        tensors |= {layer_prefix(index) + leaf: tensor for leaf, tensor in parts.items()}
    return MappingProxyType(tensors)


def expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Their shapes alone."""
    return {name: tensor.shape for name, tensor in expected_tensors(config).items()}


def is_router(name: str) -> bool:
    """Whether a tensor is a mixture's gate: a matrix that is never quantized."""
    return name.endswith(f".{ROUTER}")


def is_prediction_layer(name: str, config: DecoderConfig) -> bool:
    """Whether a tensor belongs to a layer behind the last, stored to predict further tokens."""
    first = config.num_layers
    layers = range(first, first + config.num_prediction_layers)
    return name.startswith(tuple(layer_prefix(index) for index in layers))


def _attention_of(config: DecoderConfig) -> dict[str, StoredTensor]:
    if config.latent is None:
        return _attention(config)
    tensors = latent_tensors(config, config.latent)
    return {f"self_attn.{name}": tensor for name, tensor in tensors.items()}


def _feed_forward_of(config: DecoderConfig, index: int) -> dict[str, StoredTensor]:
    if config.mixture is None or index in config.mixture.dense_layers:
        return _mlp(config)
    return mixture_tensors(config, config.mixture)


def _norms(config: DecoderConfig) -> dict[str, StoredTensor]:
    names = [INPUT_NORM, feed_forward_norm(config)]
    if config.has_post_norms:
        names += [ATTENTION_POST_NORM, FEED_FORWARD_POST_NORM]
    return dict.fromkeys(names, StoredTensor(shape=(config.hidden_size,)))


def _attention(config: DecoderConfig) -> dict[str, StoredTensor]:
    hidden, head_dim = config.hidden_size, config.head_dim
    query, kv = config.num_heads * head_dim, config.num_kv_heads * head_dim
    key_or_value = StoredTensor(shape=(kv, hidden), share=Share.KV_HEADS)
    matrices = {
        "q": StoredTensor(shape=(query, hidden), share=Share.HEADS),
        "k": key_or_value,
        "v": key_or_value,
        "o": StoredTensor(shape=(hidden, query), share=Share.HEADS, is_summed=True),
    }
    biased: tuple[str, ...] = ("q", "k", "v") if config.attention_bias else ()
    if config.output_bias:
        biased = (*biased, "o")
    tensors = _projections("self_attn", matrices, biased)
    if config.has_qk_norm:
        norms = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
        tensors |= dict.fromkeys(norms, StoredTensor(shape=(head_dim,)))
    return tensors


def _mlp(config: DecoderConfig) -> dict[str, StoredTensor]:
    hidden, inner = config.hidden_size, config.intermediate_size
    gate_or_up = StoredTensor(shape=(inner, hidden), share=Share.INNER)
    down = StoredTensor(shape=(hidden, inner), share=Share.INNER, is_summed=True)
    matrices = {"gate": gate_or_up, "up": gate_or_up, "down": down}
    return _projections("mlp", matrices, tuple(matrices) if config.mlp_bias else ())


def _projections(
    block: str, matrices: dict[str, StoredTensor], biased: tuple[str, ...]
) -> dict[str, StoredTensor]:
    """A bias is shared as its outputs are."""
    tensors = {f"{block}.{name}_proj.weight": matrix for name, matrix in matrices.items()}
    biases = {name: replace(matrices[name], shape=matrices[name].shape[:1]) for name in biased}
    return tensors | {f"{block}.{name}_proj.bias": bias for name, bias in biases.items()}
