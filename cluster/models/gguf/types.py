"""The element types of GGUF tensors: names and sizes, as the gguf package states them."""

from __future__ import annotations

from cluster.errors import BadCheckpoint, UnsupportedModel

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
GROUPS = {
    "Q4_0": (4, 32),
    "Q4_1": (4, 32),
    "Q5_0": (5, 32),
    "Q5_1": (5, 32),
    "Q8_0": (8, 32),
    "Q4_K": (4, 32),
    "Q5_K": (5, 32),
    "Q6_K": (6, 16),
}
"""Types whose values are integers with a scale and a minimum: bits of one, values that share."""


def name_of(type_id: int) -> str:
    """ "Q4_1", "F32"...; raises UnsupportedModel for a type that the gguf package does not know."""
    from gguf.constants import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(type_id).name)
    except ValueError as error:
        raise UnsupportedModel(f"GGUF tensor type {type_id} is unknown") from error


def block_of(type_name: str) -> tuple[int, int]:
    """Values of a block, and the bytes that it is stored in."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    values, num_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    return int(values), int(num_bytes)


def bytes_of(type_id: int, num_elements: int, *, tensor: str) -> int:
    """Stored size; raises BadCheckpoint where the elements do not fill whole quantized blocks."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    name_of(type_id)
    block_elements, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(type_id)]
    if num_elements % block_elements:
        raise BadCheckpoint(
            f"tensor {tensor!r} has {num_elements} elements, not a multiple of {block_elements}"
        )
    return int(num_elements // block_elements * block_bytes)


def dtype_of(type_name: str) -> str:
    """As a model card says it: "float32", "float16", "bfloat16", or the quantization's name."""
    return _DTYPES.get(type_name, type_name)
