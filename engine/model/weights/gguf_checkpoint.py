"""GGUF files, tensor by tensor: quantized matrices in their own groups, or dequantized.

Of the llama architecture, llama.cpp stores the rows of Q and K so that the two halves of each
rotated pair are neighbours; they are put back into the order of Hugging Face, where the halves of a
head are apart. Other architectures have that order already.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import torch

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.card import DecoderConfig
from cluster.models.gguf.header import GgufTensor, read_gguf_header
from cluster.models.gguf.tensor_names import from_gguf_name
from cluster.models.gguf.types import GROUPS, block_of
from cluster.models.tensor_part import WHOLE, TensorPart, inside_units, times, units_of
from engine.model.weights.dequantize import dequantize
from engine.model.weights.gguf_blocks import FORMATS, grouped
from kernels.weight_parts import take_columns
from kernels.weight_rows import take_rows
from kernels.weights import Weight

_WITH_PAIRED_ROWS = frozenset({"llama"})


class GgufCheckpoint:
    """A `Checkpoint` of one .gguf file."""

    def __init__(self, files: Sequence[Path], architecture: str, config: DecoderConfig) -> None:
        if len(files) != 1:
            raise UnsupportedModel(f"a GGUF model of {len(files)} files; merge it into 1 file")
        self._path = files[0]
        self._config = config
        self._has_paired_rows = architecture in _WITH_PAIRED_ROWS
        stored = read_gguf_header(self._path).tensors
        self._tensors = {
            from_gguf_name(name, has_post_norms=config.has_post_norms): place
            for name, place in stored.items()
        }
        self._bytes = _mapped(self._path)

    def names(self) -> frozenset[str]:
        """Hugging Face names."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first."""
        return self._tensors[name].shape

    def inputs_per_scale(self, name: str) -> int | None:
        """Of the tensor's type."""
        type_name = self._tensors[name].type_name
        return GROUPS[type_name][1] if type_name in FORMATS else None

    def read(self, name: str, part: TensorPart = WHOLE) -> torch.Tensor:
        """Float32. Raises UnsupportedModel for a quantization that nothing here can read."""
        place = self._tensors[name]
        try:
            values = dequantize(self._raw(place, part), place.type_name)
        except NotImplementedError as error:
            raise UnsupportedModel(
                f"{self._path}: {name} is quantized as {place.type_name}, which cannot be read; "
                f"use a file of {', '.join(FORMATS)}, F16, BF16 or F32"
            ) from error
        tensor = _shaped(values, place, part)
        order = self._half_order(name, part)
        return tensor if order is None else tensor[order]

    def read_weight(self, name: str, part: TensorPart = WHOLE) -> Weight:
        """Groups where the type has them (`gguf_blocks.FORMATS`); others as `read`."""
        place = self._tensors[name]
        if place.type_name not in FORMATS or len(place.shape) != 2:
            return self.read(name, part)
        rows, columns = part.within(place.shape)
        block = FORMATS[place.type_name].block
        held, inside = times(units_of(columns, block), block), inside_units(columns, block)
        weight = grouped(self._raw(place, part), place.type_name, (len(rows), len(held)))
        weight = take_columns(weight, range(inside.start, inside.stop))
        order = self._half_order(name, part)
        return weight if order is None else take_rows(weight, order)

    def _raw(self, place: GgufTensor, part: TensorPart) -> torch.Tensor:
        """uint8 [num_bytes], as stored: the blocks that hold the part, row by row."""
        stored = self._bytes[place.offset : place.offset + place.num_bytes]
        if part.is_all_of(place.shape):
            return stored.clone()
        rows, *columns = part.within(place.shape)
        by_row = stored.view(place.shape[0], -1)[rows.start : rows.stop]
        if columns:
            num_values, num_bytes = block_of(place.type_name)
            blocks = times(units_of(columns[0], num_values), num_bytes)
            by_row = by_row[:, blocks.start : blocks.stop]
        return by_row.clone(memory_format=torch.contiguous_format).flatten()

    def _half_order(self, name: str, part: TensorPart) -> torch.Tensor | None:
        """How the rows that were read, whole heads, are to be put in order; None: they are."""
        if not self._has_paired_rows:
            return None
        shape = self._tensors[name].shape
        num_rows = len(part.within(shape)[0])
        if ".q_proj." in name:
            return half_order(num_rows, num_rows * self._config.num_heads // shape[0])
        if ".k_proj." in name:
            return half_order(num_rows, num_rows * self._config.num_kv_heads // shape[0])
        return None


def _shaped(values: torch.Tensor, place: GgufTensor, part: TensorPart) -> torch.Tensor:
    """The values of the blocks that hold a part -> the part."""
    if part.is_all_of(place.shape):
        return values.view(place.shape)
    rows, *columns = part.within(place.shape)
    if not columns:
        return values
    num_values, _ = block_of(place.type_name)
    return values.view(len(rows), -1)[:, inside_units(columns[0], num_values)].contiguous()


def half_order(num_rows: int, num_heads: int) -> torch.Tensor:
    """int64 [num_rows]: each head's stored pairs (2i, 2i + 1) as rows (i, i + head_dim / 2)."""
    return torch.arange(num_rows).view(num_heads, -1, 2).transpose(1, 2).reshape(num_rows)


def _mapped(path: Path) -> torch.Tensor:
    """uint8 [file size]; pages are read when they are touched."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{path} cannot be mapped ({error})") from error
    return torch.frombuffer(mapped, dtype=torch.uint8)
