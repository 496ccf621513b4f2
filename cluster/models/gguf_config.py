"""A GGUF header as a decoder's shape. Refuses by name what the engine does not implement."""

from __future__ import annotations

from collections import Counter

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig, Llama3RopeScaling
from cluster.models.decoder_bounds import check_decoder
from cluster.models.fields import Fields
from cluster.models.gguf_header import GgufHeader
from cluster.models.gguf_types import dtype_of
from cluster.models.rope_factors import scaling_of_factors

ARCHITECTURE = "llama"
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
_MLP = ("ffn_gate", "ffn_up", "ffn_down")
_EMBEDDING, _HEAD, _ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"


def decoder_of_gguf(header: GgufHeader) -> DecoderConfig:
    """Raises UnsupportedModel for another architecture or option, BadCheckpoint for bad values."""
    where = str(header.path)
    fields = Fields(header.metadata, where)
    _require_llama(fields)
    hidden, heads = _size(fields, "embedding_length"), _size(fields, "attention.head_count")
    head_dim = _head_dim(fields, hidden, heads)
    context = _size(fields, "context_length")
    window = fields.integer("llama.attention.sliding_window", 0)
    has_attention_bias = _has_bias(header, _ATTENTION)
    config = DecoderConfig(
        vocab_size=fields.integer("llama.vocab_size", len(fields.texts("tokenizer.ggml.tokens"))),
        hidden_size=hidden,
        intermediate_size=_size(fields, "feed_forward_length"),
        num_layers=_size(fields, "block_count"),
        num_heads=heads,
        num_kv_heads=fields.integer("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number("llama.rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(header, fields, head_dim),
        max_context_tokens=min(context, window) if window > 0 else context,
        tie_word_embeddings=_HEAD not in header.tensors,
        attention_bias=has_attention_bias,
        output_bias=has_attention_bias,
        mlp_bias=_has_bias(header, _MLP),
    )
    _check_tensors(header, check_decoder(config, where))
    return config


def dtype_of_gguf(header: GgufHeader) -> str:
    """The type that most bytes of the matrices have."""
    sizes: Counter[str] = Counter()
    for tensor in header.tensors.values():
        if len(tensor.shape) > 1:
            sizes[tensor.type_name] += tensor.num_bytes
    return dtype_of(sizes.most_common(1)[0][0]) if sizes else "float32"


def _require_llama(fields: Fields) -> None:
    architecture = fields.text("general.architecture")
    if architecture != ARCHITECTURE:
        raise UnsupportedModel(
            f"{fields.where} has architecture {architecture!r}; supported in GGUF: {ARCHITECTURE!r}"
        )
    if experts := fields.integer("llama.expert_count", 0):
        raise UnsupportedModel(f"{fields.where} has {experts} experts; only dense models are run")


def _size(fields: Fields, name: str) -> int:
    value = fields.raw(f"llama.{name}")
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise UnsupportedModel(f"{fields.where}: {name} differs from layer to layer")
        return Fields({name: value[0]}, fields.where).integer(name)
    return fields.integer(f"llama.{name}")


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if heads < 1:
        raise BadCheckpoint(f"{fields.where}: attention.head_count is {heads}; it must be positive")
    head_dim = fields.integer("llama.attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        other = fields.integer(f"llama.{name}", head_dim)
        if other != head_dim:
            raise UnsupportedModel(
                f"{fields.where}: {name} is {other} and the head is {head_dim} wide; "
                "only equal widths are run"
            )
    return head_dim


def _rope_scaling(header: GgufHeader, fields: Fields, head_dim: int) -> Llama3RopeScaling | None:
    kind = fields.text("llama.rope.scaling.type", "none")
    if kind != "none":
        raise UnsupportedModel(
            f"{fields.where}: rope scaling {kind!r} is not run; supported: none and Llama 3.1's"
        )
    if _ROPE_FACTORS not in header.tensors:
        return None
    theta = fields.number("llama.rope.freq_base", 10000.0)
    return scaling_of_factors(header, header.tensors[_ROPE_FACTORS], theta, head_dim)


def _has_bias(header: GgufHeader, parts: tuple[str, ...]) -> bool:
    present = [part for part in parts if f"blk.0.{part}.bias" in header.tensors]
    if present and len(present) != len(parts):
        raise UnsupportedModel(
            f"{header.path} has biases on {', '.join(present)} only; all of {', '.join(parts)} "
            "or none are run"
        )
    return bool(present)


def _check_tensors(header: GgufHeader, config: DecoderConfig) -> None:
    for name, shape in _expected_shapes(config):
        tensor = header.tensors.get(name)
        if tensor is None:
            raise BadCheckpoint(f"{header.path} lacks tensor {name!r}; fetch or convert it again")
        if tensor.shape != shape:
            raise BadCheckpoint(
                f"{header.path}: {name!r} has shape {tensor.shape}, its metadata says {shape}"
            )


def _expected_shapes(config: DecoderConfig) -> list[tuple[str, tuple[int, ...]]]:
    hidden, mlp = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "ffn_norm": (hidden,),
        "ffn_gate": (mlp, hidden),
        "ffn_up": (mlp, hidden),
        "ffn_down": (hidden, mlp),
    }
    expected: list[tuple[str, tuple[int, ...]]] = [(_EMBEDDING, (config.vocab_size, hidden))]
    expected += [("output_norm.weight", (hidden,))]
    for index in range(config.num_layers):
        expected += [(f"blk.{index}.{part}.weight", shape) for part, shape in layer.items()]
    return expected
