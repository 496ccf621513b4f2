"""Each operation as the kernels of a set, called with tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch

from kernels.reference.embed_part import embed_part
from kernels.tape import adapter_operations as adapter_ops
from kernels.tape import latent_operations as latent_ops
from kernels.tape import mixture_operations as mixture_ops
from kernels.tape import operations as ops
from kernels.tape import row_operations as row_ops
from kernels.tape.expert_exchange import exchange_experts
from kernels.tape.kernel_set import KernelSet
from kernels.tape.recording import StepQueries
from kernels.tape.rows import Rows


@dataclass(slots=True)
class PlayedStep:
    """A step under way: what its operations read, and what they have written so far."""

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
def take(op: ops.Operation, step: PlayedStep) -> None:
    """Runs one operation."""
    raise NotImplementedError(type(op).__name__)


@take.register
def _embed(op: ops.Embed, step: PlayedStep) -> None:
    step[op.out] = op.matrix.rows(step.batch.token_ids)


@take.register
def _embed_part(op: ops.EmbedPart, step: PlayedStep) -> None:
    part, token_ids = op.part, step.batch.token_ids
    step[op.out] = embed_part(
        op.matrix, token_ids, first_token=part.first_token, vocab_size=part.vocab_size
    )


@take.register
def _scale(op: ops.Scale, step: PlayedStep) -> None:
    step[op.rows].mul_(op.scale)


@take.register
def _product(op: ops.Product, step: PlayedStep) -> None:
    x = step[op.x]
    step[op.out] = op.matrix.logits(x) if op.is_wide else op.matrix(x)


@take.register
def _add_adapters(op: adapter_ops.AddAdapters, step: PlayedStep) -> None:
    slots, batch = step.batch.adapters, step.batch
    assert slots is not None, "a step without adapters is played without them"
    slots = slots[batch.logit_rows] if op.is_wanted else slots
    step.kernels.add_adapters(step[op.x], step[op.out], slots, op.site, batch.max_query_len)


@take.register
def _rms_norm(op: ops.RmsNorm, step: PlayedStep) -> None:
    residual = step[op.residual]
    step[op.out] = step.kernels.rms_norm(residual, op.weight, op.eps, op.out.dtype)


@take.register
def _add_rms_norm(op: ops.AddRmsNorm, step: PlayedStep) -> None:
    branch, residual = step[op.branch], step[op.residual]
    step[op.out] = step.kernels.add_rms_norm(branch, residual, op.weight, op.eps)


@take.register
def _branch_norm(op: ops.BranchNorm, step: PlayedStep) -> None:
    branch = step[op.branch].float().contiguous()
    step[op.out] = step.kernels.rms_norm(branch, op.weight, op.eps, op.out.dtype)


@take.register
def _head_norm(op: ops.HeadNorm, step: PlayedStep) -> None:
    weights, heads = (op.query_weight, op.key_weight), op.heads
    step.kernels.head_norm(step[op.qkv], *weights, op.eps, heads.num_heads, heads.num_kv_heads)


@take.register
def _rope_write_kv(op: ops.RopeWriteKv, step: PlayedStep) -> None:
    batch, kv_layer = step.batch, step.kv_layers[op.layer]
    query = step.kernels.rope_write_kv(
        step[op.qkv], op.cos_sin, batch.positions, batch.slots, kv_layer
    )
    step[op.out] = query  # [num_tokens, num_heads, head_dim]


@take.register
def _paged_attention(op: ops.PagedAttention, step: PlayedStep) -> None:
    query, kv_layer = step[op.query], step.kv_layers[op.layer]
    step[op.out] = step.kernels.paged_attention(query, kv_layer, step.batch, op.scale, op.window)


@take.register
def _gated_mul(op: ops.GatedMul, step: PlayedStep) -> None:
    step[op.out] = step.kernels.gated_mul(step[op.gate_up], op.activation)


@take.register
def _keep_wanted(op: ops.KeepWanted, step: PlayedStep) -> None:
    for rows, out in zip(op.rows, op.out, strict=True):
        step[out] = step[rows][step.batch.logit_rows]


@take.register
def _leave_rows(op: ops.LeaveRows, step: PlayedStep) -> None:
    step[op.out] = step[op.rows].clone()


@take.register
def _all_reduce(op: ops.AllReduce, step: PlayedStep) -> None:
    op.collective.all_reduce(step[op.rows])


@take.register
def _all_gather(op: ops.AllGather, step: PlayedStep) -> None:
    step[op.out] = op.gathered(step[op.rows])


@take.register
def _sum_own_rows(op: row_ops.SumOwnRows, step: PlayedStep) -> None:
    step[op.out] = op.summed(step[op.rows])


@take.register
def _take_own_rows(op: row_ops.TakeOwnRows, step: PlayedStep) -> None:
    step[op.out] = op.taken(step[op.rows])


@take.register
def _gather_rows(op: row_ops.GatherRows, step: PlayedStep) -> None:
    wanted = step.batch.logit_rows if op.is_wanted else step.batch.token_ids
    step[op.out] = op.gathered(step[op.rows], len(wanted))


@take.register
def _take_columns(op: latent_ops.TakeColumns, step: PlayedStep) -> None:
    step[op.out] = step[op.rows][:, op.first : op.first + op.out.width]


@take.register
def _absorb_query(op: latent_ops.AbsorbQuery, step: PlayedStep) -> None:
    heads = step.heads(op.heads, op.num_heads)  # each [nope | rope]
    nope_dim, row_dim = heads.shape[2] - op.rope_dim, op.out.width // op.num_heads
    query = heads.new_empty((heads.shape[0], op.num_heads, row_dim))
    op.key_up(heads[..., :nope_dim], query[..., : row_dim - op.rope_dim])
    query[..., row_dim - op.rope_dim :] = heads[..., nope_dim:]
    step[op.out] = query.flatten(1)


@take.register
def _write_latent(op: latent_ops.WriteLatent, step: PlayedStep) -> None:
    batch, kv_layer = step.batch, step.kv_layers[op.layer]
    query, latent = step.heads(op.query, op.num_heads), step[op.latent]
    step.kernels.write_latent(
        query, latent, op.norm, op.cos_sin, batch.positions, batch.slots, kv_layer
    )


@take.register
def _latent_attention(op: latent_ops.AttendLatent, step: PlayedStep) -> None:
    query, kv_layer = step.heads(op.query, op.num_heads), step.kv_layers[op.layer]
    step[op.out] = step.kernels.latent_attention(
        query, kv_layer, step.batch, op.scale, op.value_dim
    )


@take.register
def _head_product(op: latent_ops.HeadProduct, step: PlayedStep) -> None:
    x = step.heads(op.x, op.num_heads)
    out = x.new_empty((x.shape[0], op.num_heads, op.out.width // op.num_heads))
    op.matrix(x, out)
    step[op.out] = out.flatten(1)


@take.register
def _route_experts(op: mixture_ops.RouteExperts, step: PlayedStep) -> None:
    chosen = step.kernels.route_experts(step[op.logits], op.bias, op.rule)
    step[op.ids], step[op.weights] = chosen


@take.register
def _run_experts(op: mixture_ops.RunExperts, step: PlayedStep) -> None:
    step[op.out] = op.experts(step[op.x], step[op.ids], step[op.weights])


@take.register
def _exchange_experts(op: mixture_ops.ExchangeExperts, step: PlayedStep) -> None:
    given = step[op.x], step[op.ids], step[op.weights]
    step[op.out] = exchange_experts(op.experts, op.collective, *given)


@take.register
def _count_picks(op: mixture_ops.CountPicks, step: PlayedStep) -> None:
    ids = step[op.ids].flatten()
    op.counts.scatter_add_(0, ids, op.each.expand_as(ids))


@take.register
def _add_rows(op: mixture_ops.AddRows, step: PlayedStep) -> None:
    step[op.rows].add_(step[op.addend])
