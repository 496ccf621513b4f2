"""Each operation as the kernels of a set, called with tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch

from kernels.tape.kernel_set import KernelSet
from kernels.tape.latent_operations import (
    AbsorbQuery,
    AttendLatent,
    HeadProduct,
    TakeColumns,
    WriteLatent,
)
from kernels.tape.mixture_operations import AddRows, RouteExperts, RunExperts
from kernels.tape.operations import (
    AddRmsNorm,
    AllGather,
    AllReduce,
    BranchNorm,
    Embed,
    GatedMul,
    HeadNorm,
    KeepWanted,
    Operation,
    PagedAttention,
    Product,
    RmsNorm,
    RopeWriteKv,
    Scale,
)
from kernels.tape.recording import StepQueries
from kernels.tape.rows import Rows


@dataclass(slots=True)
class Frame:
    """A step under way."""

    kernels: KernelSet
    batch: StepQueries
    kv_layers: Sequence[torch.Tensor]
    places: list[torch.Tensor | None]

    def __getitem__(self, rows: Rows) -> torch.Tensor:
        tensor = self.places[rows.place]
        assert tensor is not None, f"nothing was written to {rows}"
        return tensor

    def __setitem__(self, rows: Rows, tensor: torch.Tensor) -> None:
        self.places[rows.place] = tensor

    def heads(self, rows: Rows, num_heads: int) -> torch.Tensor:
        """[num_rows, num_heads, width of a head]: a view."""
        tensor = self[rows]
        return tensor.view(tensor.shape[0], num_heads, rows.width // num_heads)


@singledispatch
def take(op: Operation, frame: Frame) -> None:
    """Runs one operation."""
    raise NotImplementedError(type(op).__name__)


@take.register
def _embed(op: Embed, frame: Frame) -> None:
    frame[op.out] = op.matrix.rows(frame.batch.token_ids)


@take.register
def _scale(op: Scale, frame: Frame) -> None:
    frame[op.rows].mul_(op.scale)


@take.register
def _product(op: Product, frame: Frame) -> None:
    x = frame[op.x]
    frame[op.out] = op.matrix.logits(x) if op.is_wide else op.matrix(x)


@take.register
def _rms_norm(op: RmsNorm, frame: Frame) -> None:
    residual = frame[op.residual]
    frame[op.out] = frame.kernels.rms_norm(residual, op.weight, op.eps, op.out.dtype)


@take.register
def _add_rms_norm(op: AddRmsNorm, frame: Frame) -> None:
    branch, residual = frame[op.branch], frame[op.residual]
    frame[op.out] = frame.kernels.add_rms_norm(branch, residual, op.weight, op.eps)


@take.register
def _branch_norm(op: BranchNorm, frame: Frame) -> None:
    branch = frame[op.branch].float().contiguous()
    frame[op.out] = frame.kernels.rms_norm(branch, op.weight, op.eps, op.out.dtype)


@take.register
def _head_norm(op: HeadNorm, frame: Frame) -> None:
    weights, heads = (op.query_weight, op.key_weight), op.heads
    frame.kernels.head_norm(frame[op.qkv], *weights, op.eps, heads.num_heads, heads.num_kv_heads)


@take.register
def _rope_write_kv(op: RopeWriteKv, frame: Frame) -> None:
    batch, kv_layer = frame.batch, frame.kv_layers[op.layer]
    query = frame.kernels.rope_write_kv(
        frame[op.qkv], op.cos_sin, batch.positions, batch.slots, kv_layer
    )
    frame[op.out] = query  # [num_tokens, num_heads, head_dim]


@take.register
def _paged_attention(op: PagedAttention, frame: Frame) -> None:
    query, kv_layer = frame[op.query], frame.kv_layers[op.layer]
    frame[op.out] = frame.kernels.paged_attention(query, kv_layer, frame.batch, op.scale, op.window)


@take.register
def _gated_mul(op: GatedMul, frame: Frame) -> None:
    frame[op.out] = frame.kernels.gated_mul(frame[op.gate_up], op.activation)


@take.register
def _keep_wanted(op: KeepWanted, frame: Frame) -> None:
    for rows, out in zip(op.rows, op.out, strict=True):
        frame[out] = frame[rows][frame.batch.logit_rows]


@take.register
def _all_reduce(op: AllReduce, frame: Frame) -> None:
    op.collective.all_reduce(frame[op.rows])


@take.register
def _all_gather(op: AllGather, frame: Frame) -> None:
    frame[op.out] = op.collective.all_gather(frame[op.rows])


@take.register
def _take_columns(op: TakeColumns, frame: Frame) -> None:
    frame[op.out] = frame[op.rows][:, op.first : op.first + op.out.width]


@take.register
def _absorb_query(op: AbsorbQuery, frame: Frame) -> None:
    heads = frame.heads(op.heads, op.num_heads)  # each [nope | rope]
    nope_dim, row_dim = heads.shape[2] - op.rope_dim, op.out.width // op.num_heads
    query = heads.new_empty((heads.shape[0], op.num_heads, row_dim))
    op.key_up(heads[..., :nope_dim], query[..., : row_dim - op.rope_dim])
    query[..., row_dim - op.rope_dim :] = heads[..., nope_dim:]
    frame[op.out] = query.flatten(1)


@take.register
def _write_latent(op: WriteLatent, frame: Frame) -> None:
    batch, kv_layer = frame.batch, frame.kv_layers[op.layer]
    query, latent = frame.heads(op.query, op.num_heads), frame[op.latent]
    frame.kernels.write_latent(
        query, latent, op.norm, op.cos_sin, batch.positions, batch.slots, kv_layer
    )


@take.register
def _latent_attention(op: AttendLatent, frame: Frame) -> None:
    query, kv_layer = frame.heads(op.query, op.num_heads), frame.kv_layers[op.layer]
    frame[op.out] = frame.kernels.latent_attention(
        query, kv_layer, frame.batch, op.scale, op.value_dim
    )


@take.register
def _head_product(op: HeadProduct, frame: Frame) -> None:
    x = frame.heads(op.x, op.num_heads)
    out = x.new_empty((x.shape[0], op.num_heads, op.out.width // op.num_heads))
    op.matrix(x, out)
    frame[op.out] = out.flatten(1)


@take.register
def _route_experts(op: RouteExperts, frame: Frame) -> None:
    chosen = frame.kernels.route_experts(frame[op.logits], op.bias, op.rule)
    frame[op.ids], frame[op.weights] = chosen


@take.register
def _run_experts(op: RunExperts, frame: Frame) -> None:
    frame[op.out] = op.experts(frame[op.x], frame[op.ids], frame[op.weights])


@take.register
def _add_rows(op: AddRows, frame: Frame) -> None:
    frame[op.rows].add_(frame[op.addend])
