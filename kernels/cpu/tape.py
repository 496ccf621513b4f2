"""Records a forward as a program: each part of a decoder writes its operations down, once.

    tape = Tape(library, dtype, num_kv_heads=3, head_dim=64)
    residual = tape.embed(embedding)                     # symbols, not numbers
    x = tape.rms_norm(residual, weight, eps)
    ...
    tape.logits(lm_head, tape.linear(down, x, "branch"))
    program = tape.finish()                              # kernels/cpu/step_program.py

Activations are rows of a named place; writing to a name again overwrites what it held. A part that
has no native form raises NoNativeForm, and the whole model goes operation by operation instead.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from kernels.cpu.native_kernels import CODES, HEAD_DIM_STEP, NO_WINDOW
from kernels.cpu.step_program import KvRows, StepProgram
from kernels.cpu.step_records import (
    LOGITS,
    GeluMulRecord,
    HeadNormRecord,
    KeepWantedRecord,
    OperationRecord,
    PagedAttentionRecord,
    RmsNormRecord,
    RopeWriteKvRecord,
    ScaleRowsRecord,
    SelectRowsRecord,
    SiluMulRecord,
    ZeroRowsRecord,
)
from kernels.door import require, require_contiguous, require_dtype, require_shape


class NoNativeForm(Exception):
    """A part of the model is not among the operations of a program; says which."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Activations that a program will compute: [num_rows, width] at a place of its workspace."""

    place: int
    width: int
    dtype: torch.dtype


@runtime_checkable
class RecordedLinear(Protocol):
    """A `kernels.linear.Linear` that can be an operation of a program."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""

    def record(self, tape: Tape, x: Rows, out: Rows) -> None:
        """Adds out = x @ weight.T + bias. Raises NoNativeForm."""

    def record_rows(self, tape: Tape, out: Rows) -> None:
        """Adds out = rows of the weight, by the step's token ids. Raises NoNativeForm."""


class Tape:
    """A program in the making. Tensors given to it live as long as the program does."""

    def __init__(
        self, library: ctypes.CDLL, dtype: torch.dtype, *, num_kv_heads: int, head_dim: int
    ) -> None:
        """`dtype` is that of matrices, activations and pool. Raises NoNativeForm."""
        if dtype not in CODES or head_dim % HEAD_DIM_STEP:
            raise NoNativeForm(f"heads of {head_dim} values in {dtype}")
        self._library = library
        self.dtype = dtype
        self._code = CODES[dtype]
        self._kv = KvRows(num_kv_heads, head_dim, dtype)
        self._places: dict[str, int] = {"logits": LOGITS}
        self._row_bytes = [0]
        self._records: list[OperationRecord] = []
        self._kept: list[object] = []
        self._num_layers = 0
        self._vocab_size = 0

    def rows(self, name: str, width: int, dtype: torch.dtype | None = None) -> Rows:
        """The place of this name, made to fit. `dtype` defaults to the tape's."""
        dtype = self.dtype if dtype is None else dtype
        place = self._places.setdefault(name, len(self._row_bytes))
        if place == len(self._row_bytes):
            self._row_bytes.append(0)
        self._row_bytes[place] = max(self._row_bytes[place], width * dtype.itemsize)
        return Rows(place, width, dtype)

    def add(self, record: OperationRecord, *kept: object) -> None:
        """One more operation; `kept` owns the memory that it points to."""
        self._records.append(record)
        self._kept += kept

    def embed(self, embedding: object) -> Rows:
        """The residual stream: float32 rows of the step's tokens."""
        linear = _recorded(embedding)
        residual = self.rows("residual", linear.shape[1], torch.float32)
        linear.record_rows(self, residual)
        return residual

    def linear(self, linear: object, x: Rows, out: str) -> Rows:
        """x @ weight.T + bias, into the place `out`."""
        return self._product(linear, x, out, self.dtype)

    def logits(self, linear: object, x: Rows) -> None:
        """The product that ends the program, in float32."""
        self._vocab_size = self._product(linear, x, "logits", torch.float32).width

    def rms_norm(self, residual: Rows, weight: torch.Tensor, eps: float) -> Rows:
        """See kernels/reference/rms_norm.py."""
        return self._norm(residual, weight, eps, None)

    def add_rms_norm(self, branch: Rows, residual: Rows, weight: torch.Tensor, eps: float) -> Rows:
        """See kernels/reference/rms_norm.py; changes the residual."""
        require(branch.width == residual.width, f"a branch of width {branch.width}")
        return self._norm(residual, weight, eps, branch)

    def rope_write_kv(self, qkv: Rows, cos_sin: torch.Tensor, layer: int) -> None:
        """See kernels/reference/rope_write_kv.py; Q is rotated in its place."""
        head_dim = self._kv.head_dim
        require_dtype("cos_sin", cos_sin, torch.float32)
        require_contiguous("cos_sin", cos_sin)
        require_shape("cos_sin", cos_sin, (cos_sin.shape[0], 2, head_dim // 2))
        self._num_layers = max(self._num_layers, layer + 1)
        record = RopeWriteKvRecord(
            cos_sin=cos_sin.data_ptr(),
            dtype=self._code,
            qkv=qkv.place,
            layer=layer,
            num_heads=self._num_heads(qkv),
            num_kv_heads=self._kv.num_kv_heads,
            head_dim=head_dim,
        )
        self.add(record, cos_sin)

    def paged_attention(
        self, qkv: Rows, layer: int, scale: float, window: int | None = None
    ) -> Rows:
        """See kernels/reference/paged_attention.py; Q is the first part of `qkv`."""
        if scale <= 0:
            raise NoNativeForm(f"scores times {scale}")
        num_heads, head_dim = self._num_heads(qkv), self._kv.head_dim
        attended = self.rows("attended", num_heads * head_dim)
        record = PagedAttentionRecord(
            dtype=self._code,
            qkv=qkv.place,
            layer=layer,
            num_heads=num_heads,
            num_kv_heads=self._kv.num_kv_heads,
            head_dim=head_dim,
            window=NO_WINDOW if window is None else window,
            out=attended.place,
            scale=scale,
        )
        self.add(record)
        return attended

    def silu_mul(self, gate_up: Rows) -> Rows:
        """See kernels/reference/silu_mul.py."""
        return self._gate(SiluMulRecord, gate_up)

    def gelu_mul(self, gate_up: Rows) -> Rows:
        """See kernels/reference/gelu_mul.py."""
        return self._gate(GeluMulRecord, gate_up)

    def head_norm(
        self, qkv: Rows, query_weight: torch.Tensor, key_weight: torch.Tensor, eps: float
    ) -> None:
        """See kernels/reference/head_norm.py; in place."""
        head_dim = self._kv.head_dim
        for name, weight in (("query_weight", query_weight), ("key_weight", key_weight)):
            require_dtype(name, weight, torch.float32)
            require_shape(name, weight, (head_dim,))
        record = HeadNormRecord(
            query_weight=query_weight.data_ptr(),
            key_weight=key_weight.data_ptr(),
            dtype=self._code,
            qkv=qkv.place,
            num_heads=self._num_heads(qkv),
            num_kv_heads=self._kv.num_kv_heads,
            head_dim=head_dim,
            eps=eps,
        )
        self.add(record, query_weight, key_weight)

    def branch_norm(self, branch: Rows, weight: torch.Tensor, eps: float) -> Rows:
        """The norm of a branch that is not added to anything: of itself plus nothing."""
        nothing = self.rows("nothing", branch.width, torch.float32)
        row_bytes = nothing.width * nothing.dtype.itemsize
        self.add(ZeroRowsRecord(rows=nothing.place, row_bytes=row_bytes))
        return self._norm(nothing, weight, eps, branch, out="normed branch")

    def scale(self, rows: Rows, scale: float) -> None:
        """Multiplies float32 rows in place."""
        require(rows.dtype is torch.float32, f"rows to scale are {rows.dtype}")
        self.add(ScaleRowsRecord(rows=rows.place, width=rows.width, scale=scale))

    def keep_wanted(self, *rows: Rows) -> tuple[Rows, ...]:
        """These activations, of the rows whose logits are wanted; the others end here."""
        kept = tuple(
            self.rows(f"wanted {at}", given.width, given.dtype) for at, given in enumerate(rows)
        )
        for source, target in zip(rows, kept, strict=True):
            row_bytes = source.width * source.dtype.itemsize
            self.add(
                SelectRowsRecord(source=source.place, target=target.place, row_bytes=row_bytes)
            )
        self.add(KeepWantedRecord())
        return kept

    def finish(self) -> StepProgram:
        """The program; the tape is spent."""
        return StepProgram(
            self._library,
            self._records,
            row_bytes=self._row_bytes,
            kv=self._kv,
            num_layers=self._num_layers,
            vocab_size=self._vocab_size,
            kept=self._kept,
        )

    def _product(self, linear: object, x: Rows, out: str, dtype: torch.dtype) -> Rows:
        recorded = _recorded(linear)
        out_features, in_features = recorded.shape
        require(x.width == in_features, f"x has width {x.width}; needed: {in_features}")
        rows = self.rows(out, out_features, dtype)
        require(rows.place != x.place, f"a product of {out} into its own place")
        recorded.record(self, x, rows)
        return rows

    def _gate(self, record: type[SiluMulRecord], gate_up: Rows) -> Rows:
        require(gate_up.width % 2 == 0, f"gate_up has an odd width {gate_up.width}")
        gated = self.rows("gated", gate_up.width // 2)
        self.add(
            record(dtype=self._code, gate_up=gate_up.place, inner=gated.width, out=gated.place)
        )
        return gated

    def _norm(
        self,
        residual: Rows,
        weight: torch.Tensor,
        eps: float,
        branch: Rows | None,
        out: str = "normed",
    ) -> Rows:
        require_dtype("weight", weight, torch.float32)
        require_shape("weight", weight, (residual.width,))
        normed = self.rows(out, residual.width)
        record = RmsNormRecord(
            weight=weight.data_ptr(),
            dtype=self._code,
            residual=residual.place,
            branch=0 if branch is None else branch.place,
            has_branch=branch is not None,
            hidden=residual.width,
            out=normed.place,
            eps=eps,
        )
        self.add(record, weight)
        return normed

    def _num_heads(self, qkv: Rows) -> int:
        num_heads = qkv.width // self._kv.head_dim - 2 * self._kv.num_kv_heads
        require(num_heads > 0, f"qkv of width {qkv.width} holds no queries")
        return num_heads


def _recorded(linear: object) -> RecordedLinear:
    if not isinstance(linear, RecordedLinear):
        raise NoNativeForm(type(linear).__name__)
    return linear
