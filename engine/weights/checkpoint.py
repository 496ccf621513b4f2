"""What the loader needs of a checkpoint file, whatever its format."""

from __future__ import annotations

from typing import Protocol

import torch

from cluster.models.card import CheckpointFormat, ModelCard


class Checkpoint(Protocol):
    """Tensors by their Hugging Face names. Reading copies: the file may be closed afterwards."""

    def names(self) -> frozenset[str]:
        """Names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, rows first."""

    def read(self, name: str) -> torch.Tensor:
        """The tensor on the CPU, dequantized, in the file's precision or float32.

        Raises BadCheckpoint when the bytes cannot be read.
        """


def open_checkpoint(card: ModelCard) -> Checkpoint:
    """Raises BadCheckpoint for a file that is missing, truncated or not of the card's format."""
    from engine.weights.gguf_checkpoint import GgufCheckpoint
    from engine.weights.safetensors_checkpoint import SafetensorsCheckpoint

    if card.format is CheckpointFormat.GGUF:
        return GgufCheckpoint(card.weight_files, card.config)
    return SafetensorsCheckpoint(card.weight_files)
