"""Checkpoints that were saved without their head: names have no "model." in front."""

from __future__ import annotations

from collections.abc import Collection

import torch

from cluster.models.tensor_part import WHOLE, TensorPart
from cluster.models.tensors import EMBEDDING
from engine.model.weights.checkpoint import Checkpoint
from kernels.weights import Weight

_PREFIX = "model."
_HEADS = ("lm_head.", "score.")


def are_bare(names: Collection[str]) -> bool:
    """By the embedding's: every checkpoint has one."""
    return EMBEDDING not in names and EMBEDDING.removeprefix(_PREFIX) in names


class BareNames:
    """A `Checkpoint` whose tensors have the common names."""

    def __init__(self, stored: Checkpoint) -> None:
        self._stored = stored
        self._names = {_common_name(name): name for name in stored.names()}

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


def _common_name(name: str) -> str:
    return name if name.startswith(_HEADS) else _PREFIX + name
