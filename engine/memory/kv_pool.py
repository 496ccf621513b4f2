"""The memory of all KV blocks of one replica.

    [num_blocks, num_layers, num_planes, num_kv_heads, block_size, row_width]
     `- one block is one contiguous run: one descriptor for a transfer

Planes are keys and values; or one, the latent of multi-head latent attention. A quantized pool has
one-byte elements, and 4 more per row: in each (block, layer, plane, head) come the rows' values,
[block_size, head_dim], and then their scales, float32 [block_size].

Which block belongs to whom is not known here.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from cluster.errors import ConfigError
from cluster.kv_shape import KV_SCALE_BYTES, KvShape
from cluster.models.card import DecoderConfig
from cluster.models.model_split import ModelSplit
from engine.memory.large_pages import ask_for_large_pages

WORD_BYTES = 8
QUANTIZED_DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
"""What the option `kv` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """The shape and dtype of one block. Raises ConfigError when a (layer, plane, head) of it is not
    made of 64-bit words, in which blocks are verified."""

    shape: KvShape
    block_size: int
    dtype: torch.dtype
    """bfloat16, float16 or float32; int8 or float8_e4m3fn with a scale per row."""

    def __post_init__(self) -> None:
        slice_bytes = self.block_size * self.row_width * self.dtype.itemsize
        if slice_bytes % WORD_BYTES:
            raise ConfigError(
                f"a block of {self.block_size} rows of {self.row_width} {self.dtype} values has "
                f"{slice_bytes} bytes per head; needed: a multiple of {WORD_BYTES}; use a "
                "block_size_tokens that is a multiple of 8",
                param="block_size_tokens",
            )

    @classmethod
    def of(cls, config: DecoderConfig, block_size: int, dtype: torch.dtype) -> KvLayout:
        """The blocks of a whole model."""
        return cls(shape=config.kv_shape, block_size=block_size, dtype=dtype)

    @classmethod
    def of_part(cls, split: ModelSplit, block_size: int, dtype: torch.dtype) -> KvLayout:
        """A rank's part of each block: the same ids, its own KV heads."""
        return cls(shape=split.kv_shape, block_size=block_size, dtype=dtype)

    def deeper(self, num_layers: int) -> KvLayout:
        """With so many further layers."""
        shape = replace(self.shape, num_layers=self.shape.num_layers + num_layers)
        return replace(self, shape=shape)

    @property
    def kv(self) -> str:
        """The format as the options call it: "auto" for one that models compute in."""
        names = {dtype: name for name, dtype in QUANTIZED_DTYPES.items()}
        return names.get(self.dtype, "auto")

    @property
    def row_width(self) -> int:
        """Elements per row: the values, and the scale's bytes in a quantized pool."""
        return self.shape.head_dim + (0 if self.kv == "auto" else KV_SCALE_BYTES)

    @property
    def block_shape(self) -> tuple[int, int, int, int, int]:
        """[num_layers, num_planes, num_kv_heads, block_size, row_width]."""
        rows = self.shape
        outer = (rows.num_layers, rows.num_planes, rows.num_kv_heads)
        return (*outer, self.block_size, self.row_width)

    @property
    def block_bytes(self) -> int:
        """Size and stride of a block."""
        dtype = str(self.dtype).removeprefix("torch.")
        return self.block_size * self.shape.token_bytes(dtype=dtype, kv=self.kv)


class KvPool:
    """Owns the tensor; views of it are valid as long as the pool lives.

    On a CPU the memory is page-aligned, zero and taken from the system as it is first written.
    """

    def __init__(self, layout: KvLayout, num_blocks: int, device: str | torch.device) -> None:
        if num_blocks < 1:
            raise ConfigError(f"a KV pool of {num_blocks} blocks; at least 1 is needed")
        self.layout = layout
        self.num_blocks = num_blocks
        self.tensor = _allocate((num_blocks, *layout.block_shape), layout.dtype, device)
        self._layers = tuple(self.tensor.unbind(dim=1))

    @property
    def block_bytes(self) -> int:
        """Size and stride of a block."""
        return self.layout.block_bytes

    @property
    def num_bytes(self) -> int:
        """Size of the pool."""
        return self.num_blocks * self.block_bytes

    @property
    def address(self) -> int:
        """Of block 0, in this process or on the device."""
        return self.tensor.data_ptr()

    def layer(self, index: int) -> torch.Tensor:
        """A view: [num_blocks, num_planes, num_kv_heads, block_size, row_width], strided over
        blocks."""
        return self._layers[index]


class KvLayers(Protocol):
    """What a forward reads and writes: a pool, or some of its layers."""

    @property
    def tensor(self) -> torch.Tensor:
        """[num_blocks, num_layers, num_planes, num_kv_heads, block_size, row_width]."""

    def layer(self, index: int) -> torch.Tensor:
        """See KvPool."""


class SomeLayers:
    """KvLayers of a part of a pool's blocks, which has to live as long: views."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """[num_blocks, num_layers, num_planes, num_kv_heads, block_size, row_width], strided over
        blocks."""
        self.tensor = tensor
        self._layers = tuple(self.tensor.unbind(dim=1))

    def layer(self, index: int) -> torch.Tensor:
        """See KvPool."""
        return self._layers[index]


def _allocate(
    shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device
) -> torch.Tensor:
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)  # shared: a fork moves nothing
    ask_for_large_pages(memory)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
