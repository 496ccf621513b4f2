"""GGUF files, dequantized tensor by tensor.

llama.cpp stores the rows of Q and K so that the two halves of each rotated pair are neighbours;
they are put back into the order of Hugging Face, where the halves of a head are apart.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import torch

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig
from cluster.models.gguf_header import read_gguf_header
from engine.weights.dequantize import dequantize
from engine.weights.tensor_names import from_gguf_name


class GgufCheckpoint:
    """A `Checkpoint` of one .gguf file of the llama architecture."""

    def __init__(self, files: Sequence[Path], config: DecoderConfig) -> None:
        if len(files) != 1:
            raise UnsupportedModel(f"a GGUF model of {len(files)} files; merge it into 1 file")
        self._path = files[0]
        self._config = config
        stored = read_gguf_header(self._path).tensors
        self._tensors = {from_gguf_name(name): place for name, place in stored.items()}
        self._bytes = _mapped(self._path)

    def names(self) -> frozenset[str]:
        """Hugging Face names."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first."""
        return self._tensors[name].shape

    def read(self, name: str) -> torch.Tensor:
        """Float32. Raises UnsupportedModel for a quantization that nothing here can read."""
        place = self._tensors[name]
        raw = self._bytes[place.offset : place.offset + place.num_bytes].clone()
        try:
            values = dequantize(raw, place.type_name)
        except NotImplementedError as error:
            raise UnsupportedModel(
                f"{self._path}: {name} is quantized as {place.type_name}, which cannot be read; "
                "use a Q4_0, Q4_1, Q8_0, Q6_K, F16, BF16 or F32 file"
            ) from error
        return self._in_half_order(name, values.view(place.shape))

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


def _mapped(path: Path) -> torch.Tensor:
    """uint8 [file size]; pages are read when they are touched."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{path} cannot be mapped ({error})") from error
    return torch.frombuffer(mapped, dtype=torch.uint8)
