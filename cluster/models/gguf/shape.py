"""What the GGUF header of every architecture states alike, under the architecture's own prefix."""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig, YarnRopeScaling
from cluster.models.decoder_bounds import check_size
from cluster.models.fields import Fields
from cluster.models.gguf.header import GgufHeader
from cluster.models.gguf.rope import THETA, scaling_of_gguf

GgufReader = Callable[[GgufHeader, Fields], DecoderConfig]
"""From a header, and its architecture's keys without their prefix, to a shape; raises
UnsupportedModel by name, BadCheckpoint for bad values. Bounds are checked afterwards."""

_ATTENTION, _MLP = ("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up", "ffn_down")
_OUTPUT = ("attn_output",)
_HEAD = "output.weight"
_NOT_RUN = (
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.scale",
    "attention.clamp_kqv",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "pooling_type",
)


def own_keys(header: GgufHeader, architecture: str) -> Fields:
    """The values under "<architecture>.", without that prefix."""
    prefix = f"{architecture}."
    own = {k.removeprefix(prefix): v for k, v in header.metadata.items() if k.startswith(prefix)}
    return Fields(own, f"{header.path}: {architecture}")


def decoder_of_header(header: GgufHeader, keys: Fields) -> DecoderConfig:
    """A plain decoder without windows; biases are those whose tensors are there."""
    _refuse_options(keys)
    hidden, heads = size(keys, "embedding_length"), size(keys, "attention.head_count")
    context, head_dim = size(keys, "context_length"), _head_dim(keys, hidden, heads)
    scaling = scaling_of_gguf(header, keys, head_dim, context)
    if isinstance(scaling, YarnRopeScaling):  # some files state the context before it was stretched
        context = max(context, int(scaling.original_max_context_tokens * scaling.factor))
    tokens = Fields(header.metadata, str(header.path)).texts("tokenizer.ggml.tokens")
    return DecoderConfig(
        vocab_size=keys.integer("vocab_size", len(tokens)),
        hidden_size=hidden,
        intermediate_size=size(keys, "feed_forward_length"),
        num_layers=check_size("num_layers", size(keys, "block_count"), keys.where),
        num_heads=heads,
        num_kv_heads=size(keys, "attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        rope_theta=keys.number("rope.freq_base", THETA),
        rope_scaling=scaling,
        max_context_tokens=context,
        tie_word_embeddings=_HEAD not in header.tensors,
        attention_bias=_has_bias(header, _ATTENTION),
        output_bias=_has_bias(header, _OUTPUT),
        mlp_bias=_has_bias(header, _MLP),
    )


def size(keys: Fields, name: str, default: int | None = None) -> int:
    """An integer, or a list with the same one for every layer."""
    value = keys.raw(name)
    if isinstance(value, list) and value:
        if any(item != value[0] for item in value):
            raise UnsupportedModel(f"{keys.where}: {name} differs from layer to layer")
        return Fields({name: value[0]}, keys.where).integer(name)
    return keys.integer(name, default)


def _refuse_options(keys: Fields) -> None:
    if experts := size(keys, "expert_count", 0):
        raise UnsupportedModel(f"{keys.where} has {experts} experts; only dense models are run")
    for name in _NOT_RUN:
        if keys.raw(name):
            raise UnsupportedModel(f"{keys.where}: {name} {keys.raw(name)!r} is not run")
    if not keys.flag("attention.causal", True):
        raise UnsupportedModel(f"{keys.where}: attention that is not causal is not run")


def _head_dim(keys: Fields, hidden: int, heads: int) -> int:
    if heads < 1:
        raise BadCheckpoint(f"{keys.where}: attention.head_count is {heads}; it must be positive")
    head_dim = size(keys, "attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        other = size(keys, name, head_dim)
        if other != head_dim:
            raise UnsupportedModel(
                f"{keys.where}: {name} is {other} and the head is {head_dim} wide; "
                "only equal widths are run"
            )
    return head_dim


def _has_bias(header: GgufHeader, parts: tuple[str, ...]) -> bool:
    present = [part for part in parts if f"blk.0.{part}.bias" in header.tensors]
    if present and len(present) != len(parts):
        raise UnsupportedModel(
            f"{header.path} has biases on {', '.join(present)} only; all of {', '.join(parts)} "
            "or none are run"
        )
    return bool(present)
