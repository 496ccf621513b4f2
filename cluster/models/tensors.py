"""The tensors of a decoder: their Hugging Face names and the shapes that a config implies.

The one table of them: what a loader asks for, what a GGUF file must have under its own names
(`gguf/tensor_names.py`), and what a model takes in memory (`footprint.py`) all follow from it.
"""

from __future__ import annotations

from cluster.models.card import DecoderConfig
from cluster.models.latent_tensors import latent_shapes
from cluster.models.mixture_tensors import ROUTER, mixture_shapes

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
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


def expected_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that must be there. The head is listed only when it is not tied."""
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab_size, config.hidden_size),
        FINAL_NORM: (config.hidden_size,),
    }
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, config.hidden_size)
    for index in range(config.num_layers):
        parts = _norm_shapes(config) | _attention_of(config) | _feed_forward_of(config, index)
        shapes |= {layer_prefix(index) + leaf: shape for leaf, shape in parts.items()}
    return shapes


def is_router(name: str) -> bool:
    """Whether a tensor is a mixture's gate: a matrix that is never quantized."""
    return name.endswith(f".{ROUTER}")


def is_prediction_layer(name: str, config: DecoderConfig) -> bool:
    """Whether a tensor belongs to a layer behind the last, stored to predict further tokens."""
    first = config.num_layers
    layers = range(first, first + config.num_prediction_layers)
    return name.startswith(tuple(layer_prefix(index) for index in layers))


def _attention_of(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    if config.latent is None:
        return _attention_shapes(config)
    shapes = latent_shapes(config, config.latent)
    return {f"self_attn.{name}": shape for name, shape in shapes.items()}


def _feed_forward_of(config: DecoderConfig, index: int) -> dict[str, tuple[int, ...]]:
    if config.mixture is None or index in config.mixture.dense_layers:
        return _mlp_shapes(config)
    return mixture_shapes(config, config.mixture)


def _norm_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    names = [INPUT_NORM, feed_forward_norm(config)]
    if config.has_post_norms:
        names += [ATTENTION_POST_NORM, FEED_FORWARD_POST_NORM]
    return dict.fromkeys(names, (config.hidden_size,))


def _attention_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, head_dim = config.hidden_size, config.head_dim
    query, kv = config.num_heads * head_dim, config.num_kv_heads * head_dim
    matrices = {"q": (query, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, query)}
    biased: tuple[str, ...] = ("q", "k", "v") if config.attention_bias else ()
    if config.output_bias:
        biased = (*biased, "o")
    shapes = _projections("self_attn", matrices, biased)
    if config.has_qk_norm:
        shapes |= dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (head_dim,))
    return shapes


def _mlp_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    matrices = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    return _projections("mlp", matrices, tuple(matrices) if config.mlp_bias else ())


def _projections(
    block: str, matrices: dict[str, tuple[int, int]], biased: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        f"{block}.{name}_proj.weight": shape for name, shape in matrices.items()
    }
    return shapes | {f"{block}.{name}_proj.bias": matrices[name][:1] for name in biased}
