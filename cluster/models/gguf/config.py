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
from cluster.models.gguf.tensor_names import to_gguf_name
from cluster.models.gguf.types import dtype_of
from cluster.models.tensors import expected_shapes

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
    """Every tensor that such a decoder has is there, in its shape."""
    for ours, shape in expected_shapes(config).items():
        name = to_gguf_name(ours, has_post_norms=config.has_post_norms)
        tensor = header.tensors.get(name)
        if tensor is None:
            raise BadCheckpoint(f"{header.path} lacks tensor {name!r}; fetch or convert it again")
        if tensor.shape != shape:
            raise BadCheckpoint(
                f"{header.path}: {name!r} has shape {tensor.shape}, its metadata says {shape}"
            )
