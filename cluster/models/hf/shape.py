"""What every family's config.json states alike, with transformers' defaults for absent keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import Activation, DecoderConfig, YarnRopeScaling
from cluster.models.decoder_bounds import check_size
from cluster.models.fields import Fields
from cluster.models.hf.rope import rope_of_hf

FamilyReader = Callable[[Fields], DecoderConfig]
"""From a config.json to a shape; raises UnsupportedModel by name, BadCheckpoint for bad values.
Its bounds are checked afterwards, by `check_decoder`."""

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What an absent key means in a family's configuration class of transformers."""

    max_context_tokens: int
    num_kv_heads: int | None = None
    """None: as many as query heads; an explicit null always means that."""
    head_dim: int | None = None
    """None: hidden_size / num_heads."""
    tie_word_embeddings: bool = False
    activation_key: str = "hidden_act"
    activation: str = "silu"


def decoder_of_shape(fields: Fields, defaults: Defaults) -> DecoderConfig:
    """A plain decoder: no biases, no windows. A family's reader replaces what it does otherwise."""
    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    if heads < 1:
        raise BadCheckpoint(f"{fields.where}: num_attention_heads is {heads}; it must be positive")
    context = fields.integer("max_position_embeddings", defaults.max_context_tokens)
    theta, scaling = rope_of_hf(fields, context)
    if isinstance(scaling, YarnRopeScaling):  # some files state the context before it was stretched
        context = max(context, int(scaling.original_max_context_tokens * scaling.factor))
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=check_size("num_layers", fields.integer("num_hidden_layers"), fields.where),
        num_heads=heads,
        num_kv_heads=_kv_heads(fields, defaults, heads),
        head_dim=fields.integer("head_dim", defaults.head_dim or hidden // heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_context_tokens=context,
        tie_word_embeddings=fields.flag("tie_word_embeddings", defaults.tie_word_embeddings),
        activation=_activation(fields, defaults),
    )


def refuse_if_set(fields: Fields, *keys: str) -> None:
    """Raises UnsupportedModel for the first of these options that is neither absent, null, false
    nor 0."""
    for key in keys:
        if fields.raw(key):
            raise UnsupportedModel(f"{fields.where}: {key} {fields.raw(key)!r} is not run")


def _kv_heads(fields: Fields, defaults: Defaults, heads: int) -> int:
    if fields.states("num_key_value_heads"):
        return fields.integer("num_key_value_heads", heads)
    return defaults.num_kv_heads or heads


def _activation(fields: Fields, defaults: Defaults) -> Activation:
    name = fields.text(defaults.activation_key, defaults.activation)
    if name not in _ACTIVATIONS:
        raise UnsupportedModel(
            f"{fields.where}: {defaults.activation_key} {name!r}; supported: "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]
