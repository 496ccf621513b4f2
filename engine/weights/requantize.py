"""A stored matrix in the form that a replica holds it in."""

from __future__ import annotations

import torch

from engine.weight_format import WeightFormat
from kernels.fp8 import quantize_fp8
from kernels.weights import GroupedWeight, Weight, plain

GROUP = 32
"""Inputs per scale of what is quantized on load: the groups of GGUF, and of the native kernels."""
_BITS = {WeightFormat.INT8: 8, WeightFormat.INT4: 4}
_OF_ENDS = {WeightFormat.INT4: WeightFormat.INT8, WeightFormat.FP8: WeightFormat.FULL}


def of_ends(form: WeightFormat) -> WeightFormat:
    """The form of embedding and LM head, whose errors no later layer evens out.

    4-bit groups there cost more agreement with the unquantized model than in all layers together
    for small models, whose head is a large part of them; 8 bits do not show.
    """
    return _OF_ENDS.get(form, form)


def converted(weight: Weight, form: WeightFormat, dtype: torch.dtype) -> Weight:
    """For activations of `dtype`; a plain result keeps its own dtype.

    INT8 and INT4 leave groups alone whose values are as narrow already, and matrices whose inputs
    do not fill groups of 32.
    """
    if form is WeightFormat.STORED:
        return weight
    if form is WeightFormat.FULL:
        return plain(weight)
    if form is WeightFormat.FP8:
        return quantize_fp8(plain(weight), dtype=dtype)
    return _in_groups(weight, _BITS[form], dtype)


def _in_groups(weight: Weight, bits: int, dtype: torch.dtype) -> Weight:
    if isinstance(weight, GroupedWeight) and weight.bits <= bits:
        return weight
    if weight.shape[1] % GROUP:
        return plain(weight)
    from kernels.quantize import quantize_groups

    return quantize_groups(plain(weight), bits=bits, group=GROUP, dtype=dtype)
