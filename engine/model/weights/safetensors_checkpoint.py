"""Safetensors shards, mapped and read tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from cluster.errors import BadCheckpoint
from cluster.models.tensor_part import WHOLE, TensorPart
from kernels.weights import Weight


class SafetensorsCheckpoint:
    """A `Checkpoint` of one or more .safetensors files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._owner: dict[str, Any] = {}
        for shard in map(_open, files):
            self._owner.update(dict.fromkeys(shard.keys(), shard))

    def names(self) -> frozenset[str]:
        """Names of all tensors in all shards."""
        return frozenset(self._owner)

    def shape(self, name: str) -> tuple[int, ...]:
        """From the header."""
        return tuple(self._owner[name].get_slice(name).get_shape())

    def inputs_per_scale(self, name: str) -> int | None:
        """Nothing here is quantized."""
        return None

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        """In the file's dtype."""
        try:
            tensor = self._read(name, part)
        except SafetensorError as error:
            raise BadCheckpoint(f"tensor {name} cannot be read: {error}") from error
        return tensor

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        """As `read`: nothing here is quantized."""
        return self.read(name, part)

    def _read(self, name: str, part: TensorPart) -> torch.Tensor:
        file, shape = self._owner[name], self.shape(name)
        if part.is_all_of(shape):
            whole: torch.Tensor = file.get_tensor(name)
            return whole
        runs = tuple(slice(run.start, run.stop) for run in part.within(shape))
        tensor: torch.Tensor = file.get_slice(name)[runs]
        return tensor


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise BadCheckpoint(
            f"{path} cannot be read as safetensors ({error}); download the model again"
        ) from error
