"""From a recording to its native form. An operation that has none raises NoNativeForm."""

from __future__ import annotations

import ctypes
from functools import singledispatch
from typing import Final

import torch

from kernels.cpu.adapter_records import adapter_parts
from kernels.cpu.native_form import Cut, KvRows, NativeForm, NativeLine
from kernels.cpu.native_kernels import ACTIVATION_CODES, CODES, HEAD_DIM_STEP, NO_WINDOW
from kernels.cpu.native_matrix import NativeMatrix
from kernels.cpu.native_sums import NativeSums
from kernels.cpu.step_records import (
    LOGITS,
    AddAdaptersRecord,
    GatedMulRecord,
    HeadNormRecord,
    KeepWantedRecord,
    LeaveRowsRecord,
    PagedAttentionRecord,
    RmsNormRecord,
    RopeWriteKvRecord,
    ScaleRowsRecord,
    SelectRowsRecord,
    ZeroRowsRecord,
)
from kernels.linear import Linear
from kernels.tape import operations as ops
from kernels.tape.adapter_operations import AddAdapters
from kernels.tape.collective import NativeCollective
from kernels.tape.recording import NoNativeForm, Recording
from kernels.tape.rows import Rows

_NOTHING: Final = -1
"""Beside the places of a recording, which count from 0."""


def native_form(recording: Recording) -> NativeForm:
    """Raises NoNativeForm."""
    operations, logits, gather = recording.operations, recording.logits, None
    if isinstance(last := operations[-1], ops.AllGather):
        operations, logits, gather = operations[:-1], last.rows, last
    lowering = Lowering(logits)
    for operation in operations:
        lower(operation, lowering)
    if gather is not None and gather.root is not None:
        lowering.sums.gather_logits(lowering.rows(logits), gather.root)
    return NativeForm(
        lines=lowering.lines,
        row_bytes=lowering.row_bytes,
        lent=lowering.sums.lent,
        kv=lowering.kv(),
        num_layers=lowering.num_layers,
        vocab_size=logits.width,
        sums=lowering.sums.collective,
        gather=gather,
        left=tuple(lowering.rows(rows) for rows in recording.left),
        kept=(recording, lowering.kept),
    )


class Lowering:
    """A native form in the making: its lines, and the places of the workspace."""

    def __init__(self, logits: Rows) -> None:
        """`logits`: what the last call leaves."""
        self.lines: list[NativeLine] = []
        self.row_bytes = [0]
        self.num_layers = 0
        self.kept: list[object] = []
        """Own what records point to, beside the recording."""
        self.sums = NativeSums(self.lines, self.rows)
        self._places = {logits.place: LOGITS}
        self._rotated: dict[int, Rows] = {}
        self._kv: KvRows | None = None

    def rows(self, rows: Rows) -> Rows:
        """The same rows at their place of the workspace, made to fit."""
        place = self._places.setdefault(rows.place, len(self.row_bytes))
        if place == len(self.row_bytes):
            self.row_bytes.append(0)
        self.row_bytes[place] = max(self.row_bytes[place], rows.row_bytes)
        return Rows(place, rows.width, rows.dtype)

    def write_kv(self, op: ops.RopeWriteKv) -> Rows:
        """The place of QKV, in which Q will be rotated. All layers of a pool are alike."""
        qkv, heads = self.rows(op.qkv), op.heads
        if heads.head_dim % HEAD_DIM_STEP:
            raise NoNativeForm(f"heads of {heads.head_dim} values")
        kv = KvRows(heads.num_kv_heads, heads.head_dim, qkv.dtype)
        if self._kv not in (None, kv):
            raise NoNativeForm(f"layers of {kv} and {self._kv}")
        self._kv = kv
        self.num_layers = max(self.num_layers, op.layer + 1)
        self._rotated[op.out.place] = qkv
        return qkv

    def rotated(self, query: Rows) -> Rows:
        """The QKV that holds this query."""
        if query.place not in self._rotated:
            raise NoNativeForm("a query that was not rotated")
        return self._rotated[query.place]

    def kv(self) -> KvRows:
        """What the pool has to be."""
        if self._kv is None:
            raise NoNativeForm("a model without attention")
        return self._kv


@singledispatch
def lower(op: ops.Operation, to: Lowering) -> None:
    """Adds the lines of one operation."""
    raise NoNativeForm(type(op).__name__)


@lower.register
def _embed(op: ops.Embed, to: Lowering) -> None:
    to.lines.append(_native(op.matrix).rows_record(to.rows(op.out)))


@lower.register
def _embed_part(op: ops.EmbedPart, to: Lowering) -> None:
    to.lines.append(_native(op.matrix).rows_record(to.rows(op.out), op.part))


@lower.register
def _scale(op: ops.Scale, to: Lowering) -> None:
    rows = to.rows(op.rows)
    to.lines.append(ScaleRowsRecord(rows=rows.place, width=rows.width, scale=op.scale))


@lower.register
def _product(op: ops.Product, to: Lowering) -> None:
    to.lines.append(_native(op.matrix).product_record(to.rows(op.x), to.rows(op.out)))


@lower.register
def _add_adapters(op: AddAdapters, to: Lowering) -> None:
    x, out, site = to.rows(op.x), to.rows(op.out), op.site
    parts = adapter_parts(site)
    to.kept.append(parts)
    record = AddAdaptersRecord(
        parts=ctypes.addressof(parts),
        starts=site.starts.data_ptr(),
        num_parts=len(site.parts),
        dtype=_code(out),
        x=x.place,
        in_width=x.width,
        out=out.place,
        out_width=out.width,
        is_wanted=op.is_wanted,
    )
    to.lines.append(record)


@lower.register
def _rms_norm(op: ops.RmsNorm, to: Lowering) -> None:
    to.lines.append(_norm(to, op, op.residual, None))


@lower.register
def _add_rms_norm(op: ops.AddRmsNorm, to: Lowering) -> None:
    to.lines.append(_norm(to, op, op.residual, op.branch))


@lower.register
def _branch_norm(op: ops.BranchNorm, to: Lowering) -> None:
    """Of the branch added to nothing, at a place that only the native form has."""
    nothing = Rows(_NOTHING, op.branch.width, torch.float32)
    at = to.rows(nothing)
    to.lines.append(ZeroRowsRecord(rows=at.place, row_bytes=at.row_bytes))
    to.lines.append(_norm(to, op, nothing, op.branch))


@lower.register
def _head_norm(op: ops.HeadNorm, to: Lowering) -> None:
    qkv = to.rows(op.qkv)
    record = HeadNormRecord(
        query_weight=op.query_weight.data_ptr(),
        key_weight=op.key_weight.data_ptr(),
        dtype=_code(qkv),
        qkv=qkv.place,
        num_heads=op.heads.num_heads,
        num_kv_heads=op.heads.num_kv_heads,
        head_dim=op.heads.head_dim,
        eps=op.eps,
    )
    to.lines.append(record)


@lower.register
def _rope_write_kv(op: ops.RopeWriteKv, to: Lowering) -> None:
    qkv = to.write_kv(op)
    record = RopeWriteKvRecord(
        cos_sin=op.cos_sin.data_ptr(),
        dtype=_code(qkv),
        qkv=qkv.place,
        layer=op.layer,
        num_heads=op.heads.num_heads,
        num_kv_heads=op.heads.num_kv_heads,
        head_dim=op.heads.head_dim,
    )
    to.lines.append(record)


@lower.register
def _paged_attention(op: ops.PagedAttention, to: Lowering) -> None:
    if op.scale <= 0:
        raise NoNativeForm(f"scores times {op.scale}")
    qkv = to.rotated(op.query)
    record = PagedAttentionRecord(
        dtype=_code(qkv),
        qkv=qkv.place,
        layer=op.layer,
        num_heads=op.heads.num_heads,
        num_kv_heads=op.heads.num_kv_heads,
        head_dim=op.heads.head_dim,
        window=NO_WINDOW if op.window is None else op.window,
        out=to.rows(op.out).place,
        scale=op.scale,
    )
    to.lines.append(record)


@lower.register
def _gated_mul(op: ops.GatedMul, to: Lowering) -> None:
    gate_up, out = to.rows(op.gate_up), to.rows(op.out)
    record = GatedMulRecord(
        activation=ACTIVATION_CODES[op.activation],
        dtype=_code(gate_up),
        gate_up=gate_up.place,
        inner=out.width,
        out=out.place,
    )
    to.lines.append(record)


@lower.register
def _keep_wanted(op: ops.KeepWanted, to: Lowering) -> None:
    for source, kept in zip(op.rows, op.out, strict=True):
        rows, out = to.rows(source), to.rows(kept)
        to.lines.append(
            SelectRowsRecord(source=rows.place, target=out.place, row_bytes=rows.row_bytes)
        )
    to.lines.append(KeepWantedRecord())


@lower.register
def _leave_rows(op: ops.LeaveRows, to: Lowering) -> None:
    rows, out = to.rows(op.rows), to.rows(op.out)
    to.lines.append(LeaveRowsRecord(source=rows.place, target=out.place, row_bytes=rows.row_bytes))


@lower.register
def _all_reduce(op: ops.AllReduce, to: Lowering) -> None:
    rows = to.rows(op.rows)
    if rows.place == LOGITS:
        raise NoNativeForm("a sum of logits")
    if isinstance(op.collective, NativeCollective):
        to.sums.add(op.collective, rows)
    else:
        to.lines.append(Cut(op.collective, rows))


def _norm(
    to: Lowering,
    op: ops.RmsNorm | ops.AddRmsNorm | ops.BranchNorm,
    residual: Rows,
    branch: Rows | None,
) -> RmsNormRecord:
    out = to.rows(op.out)
    return RmsNormRecord(
        weight=op.weight.data_ptr(),
        dtype=_code(out),
        residual=to.rows(residual).place,
        branch=0 if branch is None else to.rows(branch).place,
        has_branch=branch is not None,
        hidden=out.width,
        out=out.place,
        eps=op.eps,
    )


def _native(matrix: Linear) -> NativeMatrix:
    if not isinstance(matrix, NativeMatrix):
        raise NoNativeForm(type(matrix).__name__)
    return matrix


def _code(rows: Rows) -> int:
    if rows.dtype not in CODES:
        raise NoNativeForm(f"rows in {rows.dtype}")
    return CODES[rows.dtype]
