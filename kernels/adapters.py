"""The interface of adapters: what rows get beside a product, each by the adapter of its sequence.

    out[row, columns of a part] += (x[row] @ down.T) @ up        down and up of the row's adapter

Low-rank adaptation (Hu et al., 2021). All adapters of a device lie in one stack of LoRA ranks for
each matrix; a slot says which run of them is an adapter's. Slot 0 is no adapter's: its rows are
neither read nor written.

    down  [num_lora_ranks, in]     | adapter of slot 2: rank 0, 1, ... | of slot 1: ... | free ... |
    up    [num_lora_ranks, width]  the same runs; the adapter's scale is in it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.door import require, require_contiguous, require_dtype, require_shape

NO_ADAPTER = 0
"""The slot of rows without one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdapterPart:
    """Of one matrix: those that share an input are parts of one site."""

    down: torch.Tensor  # [num_lora_ranks, in]
    up: torch.Tensor  # [num_lora_ranks, width]
    lora_ranks: torch.Tensor  # int32 [num_slots]; 0: the slot's adapter leaves this matrix alone
    first_column: int
    """Of the site's output."""

    @property
    def num_bytes(self) -> int:
        """Memory of the stacks."""
        return self.down.nbytes + self.up.nbytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdapterSite:
    """A product that adapters may add to. Raises ValueError for stacks that do not fit together."""

    parts: tuple[AdapterPart, ...]
    starts: torch.Tensor  # int32 [num_slots]: the first rank of each slot's run
    max_lora_rank: int
    """Of one adapter at one matrix: what `lora_ranks` never says more than."""

    def __post_init__(self) -> None:
        require(0 < len(self.parts) <= 3, f"{len(self.parts)} parts; needed: 1 to 3")
        require(self.max_lora_rank > 0, f"max_lora_rank is {self.max_lora_rank}")
        require_dtype("starts", self.starts, torch.int32)
        for part in self.parts:
            num_lora_ranks = len(part.down)
            require_shape("down", part.down, (num_lora_ranks, self.in_features))
            require_shape("up", part.up, (num_lora_ranks, part.up.shape[1]))
            require_shape("lora_ranks", part.lora_ranks, tuple(self.starts.shape))
            require_dtype("lora_ranks", part.lora_ranks, torch.int32)
            require_dtype("up", part.up, part.down.dtype)
            require_contiguous("down", part.down)
            require_contiguous("up", part.up)

    @property
    def in_features(self) -> int:
        """Width of the input."""
        return self.parts[0].down.shape[1]

    @property
    def out_features(self) -> int:
        """Width that the output has at least."""
        return max(part.first_column + part.up.shape[1] for part in self.parts)

    @property
    def dtype(self) -> torch.dtype:
        """Of the stacks: that of the rows."""
        return self.parts[0].down.dtype

    @property
    def num_bytes(self) -> int:
        """Memory of the stacks."""
        return sum(part.num_bytes for part in self.parts)


AddAdaptersKernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, AdapterSite, int], None]
"""x [num_rows, in], out [num_rows, out], in place; slots int32 [num_rows]; the site; rows of the
longest sequence in the step, by which a kernel may choose its way."""


def check_adapters(
    x: torch.Tensor, out: torch.Tensor, slots: torch.Tensor, site: AdapterSite
) -> None:
    """The door of every add_adapters."""
    num_rows = len(slots)
    require_dtype("slots", slots, torch.int32)
    require_shape("x", x, (num_rows, site.in_features))
    require_shape("out", out, (num_rows, out.shape[-1]))
    require(out.shape[1] >= site.out_features, f"out has width {out.shape[1]}")
    require_dtype("x", x, site.dtype)
    require_dtype("out", out, site.dtype)
    require_contiguous("x", x)
    require_contiguous("out", out)
