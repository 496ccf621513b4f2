"""What the loader needs of a checkpoint file, whatever its format."""

from __future__ import annotations

from typing import Protocol

import torch

from cluster.models.tensor_part import WHOLE, TensorPart
from kernels.weights import Weight


class Checkpoint(Protocol):
    """Tensors by their Hugging Face names. Reading copies: the file may be closed afterwards.

    Of a part no more is read than the words, groups and blocks that hold it.
    A quantized matrix is one tensor, "....weight", of its own shape, whatever it is stored as.
    """

    def names(self) -> frozenset[str]:
        """Names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, rows first."""

    def inputs_per_scale(self, name: str) -> int | None:
        """Inputs of a matrix that share a scale where it is stored; None: it is not quantized."""

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        """The tensor on the CPU, dequantized, in the file's precision or float32.

        Raises BadCheckpoint when the bytes cannot be read.
        """

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        """A matrix on the CPU as it is stored, exactly; what is quantized dequantizes to float32.

        Raises BadCheckpoint as `read`, and where the parts of a quantized matrix do not fit.
        """
