"""The operations of a decoder's forward; `kernels/reference/` says what each computes.

An operation holds the tensors and matrices that it needs and names the rows of its input and its
output. It is the same on every device, and knows no numbers. `latent_operations.py` and
`mixture_operations.py` have those that only some families need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

import torch

from kernels.door import require, require_contiguous, require_dtype, require_shape
from kernels.gated_mul import GateActivation, gated_width
from kernels.linear import Linear
from kernels.tape.collective import Collective
from kernels.tape.rows import QkvHeads, Rows, VocabularyPart


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of a recording."""

    makes: ClassVar[tuple[str, ...]] = ("out",)
    """Fields of rows that are written whole; other rows are read, and may be changed in place."""

    def made(self) -> list[Rows]:
        """Rows that are written without being read."""
        return [rows for name, rows in self._rows() if name in self.makes]

    def used(self) -> list[Rows]:
        """Rows that are read."""
        return [rows for name, rows in self._rows() if name not in self.makes]

    def _rows(self) -> Iterator[tuple[str, Rows]]:
        for field in fields(self):
            value = getattr(self, field.name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Rows):
                    yield field.name, each


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(Operation):
    """Rows of the embedding, by the step's token ids, in float32."""

    matrix: Linear
    out: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedPart(Operation):
    """As `Embed`, of a rank that has some of the rows; other ranks' tokens become zeros."""

    matrix: Linear
    part: VocabularyPart
    out: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Operation):
    """Multiplies float32 rows in place."""

    rows: Rows
    scale: float

    def __post_init__(self) -> None:
        require(self.rows.dtype is torch.float32, f"rows to scale are {self.rows.dtype}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm(Operation):
    """The norm of float32 rows, in the dtype of `out`."""

    residual: Rows
    weight: torch.Tensor  # float32 [width]
    eps: float
    out: Rows

    def __post_init__(self) -> None:
        _require_norm_weight(self.weight, self.residual.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRmsNorm(Operation):
    """Adds a branch to the residual, in place; then its norm."""

    branch: Rows
    residual: Rows
    weight: torch.Tensor  # float32 [width]
    eps: float
    out: Rows

    def __post_init__(self) -> None:
        require(self.branch.width == self.residual.width, f"a branch of width {self.branch.width}")
        _require_norm_weight(self.weight, self.residual.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchNorm(Operation):
    """The norm of a branch by itself, in its dtype."""

    branch: Rows
    weight: torch.Tensor  # float32 [width]
    eps: float
    out: Rows

    def __post_init__(self) -> None:
        _require_norm_weight(self.weight, self.branch.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorm(Operation):
    """Norms each head of Q and K in place."""

    qkv: Rows
    heads: QkvHeads
    query_weight: torch.Tensor  # float32 [head_dim]
    key_weight: torch.Tensor  # float32 [head_dim]
    eps: float

    def __post_init__(self) -> None:
        _require_heads(self.qkv, self.heads)
        _require_norm_weight(self.query_weight, self.heads.head_dim)
        _require_norm_weight(self.key_weight, self.heads.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(Operation):
    """x @ weight.T + bias."""

    matrix: Linear
    x: Rows
    out: Rows
    is_wide: bool = False
    """Out in float32, the sums not rounded: `Linear.logits`."""

    def __post_init__(self) -> None:
        outputs, inputs = self.matrix.shape
        require(self.x.width == inputs, f"x has width {self.x.width}; needed: {inputs}")
        require(self.out.width == outputs, f"out has width {self.out.width}; needed: {outputs}")
        require(self.out.place != self.x.place, "a product into the place of its x")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeWriteKv(Operation):
    """Rotates Q, in place or not; writes K and V to a layer of the pool. `out` is the rotated Q,
    and stays only as long as `qkv` does."""

    qkv: Rows
    heads: QkvHeads
    cos_sin: torch.Tensor  # float32 [max_context, 2, head_dim / 2]
    layer: int
    out: Rows

    def __post_init__(self) -> None:
        _require_heads(self.qkv, self.heads)
        require_dtype("cos_sin", self.cos_sin, torch.float32)
        require_contiguous("cos_sin", self.cos_sin)
        shape = (self.cos_sin.shape[0], 2, self.heads.head_dim // 2)
        require_shape("cos_sin", self.cos_sin, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedAttention(Operation):
    """Attention of a rotated Q to a layer of the pool."""

    query: Rows
    heads: QkvHeads
    layer: int
    scale: float
    window: int | None
    out: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMul(Operation):
    """The gate of a feed-forward."""

    gate_up: Rows
    activation: GateActivation
    out: Rows

    def __post_init__(self) -> None:
        inner = gated_width(self.gate_up.width)
        require(self.out.width == inner, f"out has width {self.out.width}; needed: {inner}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepWanted(Operation):
    """Keeps of each activation the rows whose logits are wanted. Others end here: what comes after
    has num_logits rows."""

    rows: tuple[Rows, ...]
    out: tuple[Rows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRows(Operation):
    """Copies rows of all the step's tokens to a place that outlives the step."""

    rows: Rows
    out: Rows

    def __post_init__(self) -> None:
        require(self.out.row_bytes == self.rows.row_bytes, f"out has {self.out.row_bytes} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Operation):
    """Sums rows over the ranks, in place."""

    collective: Collective
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(Operation):
    """The columns of all ranks side by side; those behind the width of `out` are dropped."""

    collective: Collective
    rows: Rows
    out: Rows
    root: int | None = None
    """The one rank that wants them; None: all do."""

    def __post_init__(self) -> None:
        gathered = self.rows.width * self.collective.world_size
        require(self.out.width <= gathered, f"{self.out.width} columns of {gathered}")

    def gathered(self, rows: torch.Tensor) -> torch.Tensor:
        """[num_rows, width of `rows`] of this rank -> [num_rows, width of `out`], contiguous; of no
        use where another rank alone wants them."""
        if self.root is None:
            columns = self.collective.all_gather(rows)
        else:
            columns = self.collective.gather(rows, self.root)
        return columns[:, : self.out.width].contiguous()


def _require_norm_weight(weight: torch.Tensor, width: int) -> None:
    require_dtype("weight", weight, torch.float32)
    require_shape("weight", weight, (width,))


def _require_heads(qkv: Rows, heads: QkvHeads) -> None:
    require(qkv.width == heads.width, f"qkv has width {qkv.width}; needed: {heads.width}")
