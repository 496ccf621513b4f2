"""GGUF files, dequantized tensor by tensor.

llama.cpp stores the rows of Q and K so that the two halves of each rotated pair are neighbours;
they are put back into the order of Hugging Face, where the halves of a head are apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig
from engine.weights.tensor_names import from_gguf_name


class GgufCheckpoint:
    """A `Checkpoint` of one .gguf file of the llama architecture."""

    def __init__(self, files: Sequence[Path], config: DecoderConfig) -> None:
        if len(files) != 1:
            raise UnsupportedModel(f"a GGUF model of {len(files)} files; merge it into 1 file")
        self._path = files[0]
        self._config = config
        self._tensors = {from_gguf_name(t.name): t for t in _read(self._path).tensors}

    def names(self) -> frozenset[str]:
        """Hugging Face names."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """GGUF lists the fastest dimension first; this is the other way round."""
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def read(self, name: str) -> torch.Tensor:
        """Float32."""
        stored = self._tensors[name]
        try:
            values = gguf.quants.dequantize(stored.data, stored.tensor_type)
        except NotImplementedError as error:
            raise UnsupportedModel(
                f"{self._path}: {name} is quantized as {stored.tensor_type.name}, which cannot be "
                f"read; use a Q4_0, Q4_1, Q8_0, Q6_K, F16 or F32 file"
            ) from error
        tensor = torch.from_numpy(np.array(values, dtype=np.float32, copy=True))
        return self._in_half_order(name, tensor.view(self.shape(name)))

    def _in_half_order(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if ".q_proj." in name:
            return halves_apart(tensor, self._config.num_heads)
        if ".k_proj." in name:
            return halves_apart(tensor, self._config.num_kv_heads)
        return tensor


def halves_apart(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Each head's row pairs (2i, 2i + 1) become rows (i, i + head_dim / 2)."""
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


def _read(path: Path) -> Any:
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise BadCheckpoint(
            f"{path} cannot be read as GGUF ({error}); download the model again"
        ) from error
