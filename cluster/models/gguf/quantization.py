"""What a GGUF header says of how its matrices are quantized."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from cluster.models.card import QuantizationConfig, QuantMethod
from cluster.models.gguf.header import GgufHeader, GgufTensor
from cluster.models.gguf.types import GROUPS

_ENDS = ("token_embd.weight", "output.weight")


def quantization_of_gguf(header: GgufHeader) -> QuantizationConfig | None:
    """Of the type that most bytes have; None where that is not made of groups (F16, IQ4_XS...)."""
    layers = [t for t in header.tensors.values() if t.name not in _ENDS and len(t.shape) > 1]
    main = _commonest(layers)
    if main not in GROUPS:
        return None
    bits, group = GROUPS[main]
    return QuantizationConfig(method=QuantMethod.GGUF, bits=bits, group=group)


def loaded_bytes_of(header: GgufHeader) -> int:
    """What the tensors take once a replica has loaded them in their own groups.

    A value keeps 4 bits or gets 8, and its group of 32 a scale and a minimum of 16 bits each;
    other matrices are held in 16 bits, vectors in 32.
    """
    return (
        sum(_loaded_bits(tensor) * math.prod(tensor.shape) for tensor in header.tensors.values())
        // 8
    )


def _loaded_bits(tensor: GgufTensor) -> int:
    if tensor.type_name in GROUPS:
        return 4 + 1 if GROUPS[tensor.type_name][0] <= 4 else 8 + 1
    return 16 if len(tensor.shape) > 1 else 32


def _commonest(tensors: Iterable[GgufTensor]) -> str:
    """The type of most bytes; "" of none."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type_name] += tensor.num_bytes
    return sizes.most_common(1)[0][0] if sizes else ""
