"""The tensors that a quantized matrix of a safetensors checkpoint is stored as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from cluster.errors import BadCheckpoint
from cluster.models.tensor_part import WHOLE, TensorPart
from engine.model.weights.checkpoint import Checkpoint
from kernels.weights import Weight


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """One module's tensors, by the suffixes of their names: "qweight", "scales"..."""

    module: str
    """Name of the matrix without ".weight"."""
    names: Mapping[str, str]
    """By suffix: the tensor's full name."""
    checkpoint: Checkpoint

    def __contains__(self, suffix: str) -> bool:
        return suffix in self.names

    def shape(self, suffix: str) -> tuple[int, ...]:
        """Raises BadCheckpoint when that tensor is missing."""
        return self.checkpoint.shape(self._name(suffix))

    def read(self, suffix: str, *shape: int, part: TensorPart = WHOLE) -> torch.Tensor:
        """The tensor, or a part of it; raises BadCheckpoint when it is missing or not of this
        shape."""
        found = self.shape(suffix)
        if found != shape:
            raise self.bad(f"its {suffix} has shape {found}; needed: {shape}")
        return self.checkpoint.read(self._name(suffix), part)

    def integers(self, suffix: str, *shape: int, part: TensorPart = WHOLE) -> torch.Tensor:
        """As `read`, of int32."""
        tensor = self.read(suffix, *shape, part=part)
        if tensor.dtype is not torch.int32:
            raise self.bad(f"its {suffix} is {tensor.dtype}; needed: torch.int32")
        return tensor

    def matrix_shape(self, suffix: str) -> tuple[int, int]:
        """As `shape`, of what must have two dimensions."""
        shape = self.shape(suffix)
        if len(shape) != 2:
            raise self.bad(f"its {suffix} has shape {shape}; needed: a matrix")
        return shape[0], shape[1]

    def bad(self, problem: str) -> BadCheckpoint:
        """The error to raise."""
        return BadCheckpoint(f"{self.module} is damaged: {problem}; download the model again")

    def _name(self, suffix: str) -> str:
        if suffix not in self.names:
            raise self.bad(f"it lacks {suffix}")
        return self.names[suffix]


class StoredLayout(Protocol):
    """How a quantization method stores a matrix."""

    @property
    def suffixes(self) -> frozenset[str]:
        """Suffixes of the names that belong to a quantized matrix."""

    def recognizes(self, names: Mapping[str, str]) -> bool:
        """Whether a module with tensors of these names, by suffix, is quantized."""

    def shape(self, stored: StoredMatrix) -> tuple[int, int]:
        """[out, in], without reading the matrix. Raises BadCheckpoint."""

    def inputs_per_scale(self, stored: StoredMatrix) -> int | None:
        """Inputs that share a scale; None: no number of them, in activation order."""

    def read(self, stored: StoredMatrix, part: TensorPart = WHOLE) -> Weight:
        """Exactly what is stored, of a part of the matrix.

        Raises BadCheckpoint when what it is stored as does not fit together.
        """


def unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers packed into 32-bit words: int32 [rows, words] -> uint8 [rows, words * 32 / bits],
    a word's lowest bits first."""
    dense = words.clone(memory_format=torch.contiguous_format)  # also of one word
    octets = dense.view(torch.uint8)  # little-endian: a word's lowest byte first
    if bits == 8:
        return octets
    return torch.stack((octets & 15, octets >> 4), -1).flatten(-2)
