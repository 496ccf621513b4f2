"""The matrices of a decoder that adapters may add to, and what of an adapter is a rank's.

Outputs that ranks divide: each has all of `down`, and the rows of `up` that are its outputs.
Outputs that ranks add up: each has the columns of `down` that are its inputs, and all of `up`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from cluster.models.stored_tensor import StoredTensor
from cluster.models.tensor_part import WHOLE
from cluster.models.tensors import expected_tensors, layer_prefix

QKV: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
OUTPUT: Final = ("self_attn.o_proj",)
GATE_UP: Final = ("mlp.gate_proj", "mlp.up_proj")
DOWN: Final = ("mlp.down_proj",)
SITES: Final = (QKV, OUTPUT, GATE_UP, DOWN)
"""Of a layer: matrices that are multiplied in one product, in the order of its columns."""


@dataclass(frozen=True, slots=True)
class TargetPart:
    """A rank's part of one target."""

    outputs: range
    inputs: range


def site_modules(index: int, site: tuple[str, ...]) -> tuple[str, ...]:
    """Of a layer, by the names that checkpoints have."""
    return tuple(f"{layer_prefix(index)}{name}" for name in site)


def adapter_targets(config: DecoderConfig) -> dict[str, StoredTensor]:
    """By module. Not routed or shared experts, and no part of latent attention: what adapters
    would add there has no place yet."""
    tensors = expected_tensors(config)
    found: dict[str, StoredTensor] = {}
    for index in range(config.num_layers):
        for site in SITES:
            if config.latent is not None and site in (QKV, OUTPUT):
                continue
            for module in site_modules(index, site):
                if (tensor := tensors.get(f"{module}.weight")) is not None:
                    found[module] = tensor
    return found


def part_of(split: ModelSplit, tensor: StoredTensor) -> TargetPart:
    """A rank's."""
    part = split.part_of(tensor) or WHOLE
    outputs, inputs = part.within(tensor.shape)
    return TargetPart(outputs, inputs)


def values_per_lora_rank(split: ModelSplit) -> int:
    """Numbers that one LoRA rank has in all targets of a part of the model (see ModelSplit)."""
    parts = [part_of(split, tensor) for tensor in adapter_targets(split.config).values()]
    return sum(len(part.outputs) + len(part.inputs) for part in parts)
