"""What the loader needs of a checkpoint file, whatever its format."""

from __future__ import annotations

from typing import Protocol

import torch

from cluster.models.card import CheckpointFormat, ModelCard
from engine.model.weights.tensor_names import expected_shapes
from kernels.weights import Weight


class Checkpoint(Protocol):
    """Tensors by their Hugging Face names. Reading copies: the file may be closed afterwards.

    A quantized matrix is one tensor, "....weight", of its own shape, whatever it is stored as.
    """

    def names(self) -> frozenset[str]:
        """Names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, rows first."""

    def read(self, name: str) -> torch.Tensor:
        """The tensor on the CPU, dequantized, in the file's precision or float32.

        Raises BadCheckpoint when the bytes cannot be read.
        """

    def read_weight(self, name: str) -> Weight:
        """A matrix on the CPU as it is stored, exactly; what is quantized dequantizes to float32.

        Raises BadCheckpoint as `read`, and where the parts of a quantized matrix do not fit.
        """


def open_checkpoint(card: ModelCard) -> Checkpoint:
    """Raises BadCheckpoint for a file that is missing, truncated or not of the card's format."""
    from engine.model.weights.gguf_checkpoint import GgufCheckpoint
    from engine.model.weights.mixtral_names import MIXTRAL, MixtralNames
    from engine.model.weights.quantized_checkpoint import QuantizedCheckpoint
    from engine.model.weights.safetensors_checkpoint import SafetensorsCheckpoint

    if card.format is CheckpointFormat.GGUF:
        return GgufCheckpoint(card.weight_files, card.architecture, card.config)
    files = SafetensorsCheckpoint(card.weight_files)
    stored: Checkpoint = MixtralNames(files) if card.architecture == MIXTRAL else files
    if card.quantization is None:
        return stored
    return QuantizedCheckpoint(stored, card.quantization, expected_shapes(card.config).keys())
