"""Mixtral's checkpoints have names of their own for what every other mixture calls alike."""

from __future__ import annotations

import re

import torch

from cluster.models.tensor_part import WHOLE, TensorPart
from engine.model.weights.checkpoint import Checkpoint
from kernels.weights import Weight

MIXTRAL = "MixtralForCausalLM"
_BLOCK = ".block_sparse_moe."
_EXPERT = re.compile(r"(\.mlp\.experts\.\d+)\.(w[123])\.")
_PROJECTIONS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def common_name(name: str) -> str:
    """model.layers.3.block_sparse_moe.experts.5.w2.weight
    -> model.layers.3.mlp.experts.5.down_proj.weight; other names unchanged."""
    if _BLOCK not in name:
        return name
    return _EXPERT.sub(
        lambda found: f"{found[1]}.{_PROJECTIONS[found[2]]}.", name.replace(_BLOCK, ".mlp.")
    )


class MixtralNames:
    """A `Checkpoint` whose tensors have the common names."""

    def __init__(self, stored: Checkpoint) -> None:
        self._stored = stored
        self._names = {common_name(name): name for name in stored.names()}

    def names(self) -> frozenset[str]:
        """See Checkpoint."""
        return frozenset(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        """See Checkpoint."""
        return self._stored.shape(self._names[name])

    def inputs_per_scale(self, name: str) -> int | None:
        """See Checkpoint."""
        return self._stored.inputs_per_scale(self._names[name])

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        """See Checkpoint."""
        return self._stored.read(self._names[name], part)

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        """See Checkpoint."""
        return self._stored.read_weight(self._names[name], part)
