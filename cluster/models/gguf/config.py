"""A GGUF header as a decoder's shape. Refuses by name what the engine does not implement."""

from __future__ import annotations

from collections import Counter
from typing import Final

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig
from cluster.models.decoder_bounds import check_decoder
from cluster.models.fields import Fields
from cluster.models.gguf.dense import DENSE
from cluster.models.gguf.header import GgufHeader
from cluster.models.gguf.shape import GgufReader, own_keys
from cluster.models.gguf.types import dtype_of

READERS: Final[dict[str, GgufReader]] = {**DENSE}
"""By general.architecture."""


def decoder_of_gguf(header: GgufHeader) -> tuple[str, DecoderConfig]:
    """The architecture's name and the shape.

    Raises UnsupportedModel for another architecture or option, BadCheckpoint for bad values.
    """
    where = str(header.path)
    architecture = Fields(header.metadata, where).text("general.architecture")
    if architecture not in READERS:
        raise UnsupportedModel(
            f"{where} has architecture {architecture!r}; supported in GGUF: {', '.join(READERS)}"
        )
    config = READERS[architecture](header, own_keys(header, architecture))
    _check_tensors(header, check_decoder(config, where))
    return architecture, config


def dtype_of_gguf(header: GgufHeader) -> str:
    """The type that most bytes of the matrices have."""
    sizes: Counter[str] = Counter()
    for tensor in header.tensors.values():
        if len(tensor.shape) > 1:
            sizes[tensor.type_name] += tensor.num_bytes
    return dtype_of(sizes.most_common(1)[0][0]) if sizes else "float32"


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
    """Of the tensors that every file of such a shape has."""
    hidden = config.hidden_size
    expected: list[tuple[str, tuple[int, ...]]] = [
        ("token_embd.weight", (config.vocab_size, hidden)),
        ("output_norm.weight", (hidden,)),
    ]
    layer = _norm_shapes(config) | _attention_shapes(config) | _mlp_shapes(config)
    for index in range(config.num_layers):
        expected += [(f"blk.{index}.{part}.weight", shape) for part, shape in layer.items()]
    return expected


def _norm_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    names = ["attn_norm", "ffn_norm"]
    if config.has_post_norms:
        names += ["post_attention_norm", "post_ffw_norm"]
    return dict.fromkeys(names, (config.hidden_size,))


def _attention_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, head_dim = config.hidden_size, config.head_dim
    query, kv = config.num_heads * head_dim, config.num_kv_heads * head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_q": (query, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, query),
    }
    if config.has_qk_norm:
        shapes |= {"attn_q_norm": (head_dim,), "attn_k_norm": (head_dim,)}
    return shapes


def _mlp_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    return {"ffn_gate": (inner, hidden), "ffn_up": (inner, hidden), "ffn_down": (hidden, inner)}
