"""Whether a row of a recording has the same bits in whatever batch it is computed.

All that a native program has does. Of what it has not, the latents and the experts of this kernel
set do where their matrices are packed by it: each row by the same instructions, in the same order.
"""

from __future__ import annotations

from functools import singledispatch

from kernels.cpu.experts import SortedExperts
from kernels.cpu.head_linear import PackedHeadLinear
from kernels.cpu.lowering import Lowering, lower
from kernels.cpu.native_kernels import HEAD_DIM_STEP
from kernels.cpu.native_matrix import NativeMatrix
from kernels.placed_experts import PlacedExperts
from kernels.tape import latent_operations as latent_ops
from kernels.tape import mixture_operations as mixture_ops
from kernels.tape import operations as ops
from kernels.tape.recording import NoNativeForm, Recording


def has_alike_rows(recording: Recording) -> bool:
    """Of this set's kernels, called one by one over a pool that is not quantized."""
    lowering = Lowering(recording.logits)
    return all(_is_alike(operation, lowering) for operation in recording.operations)


@singledispatch
def _is_alike(op: ops.Operation, to: Lowering) -> bool:
    try:
        lower(op, to)
    except NoNativeForm:
        return False
    return True


@_is_alike.register
def _gather(op: ops.AllGather, to: Lowering) -> bool:
    return True


@_is_alike.register
def _sum(op: ops.AllReduce, to: Lowering) -> bool:
    return True


@_is_alike.register
def _columns(op: latent_ops.TakeColumns, to: Lowering) -> bool:
    return True


@_is_alike.register
def _query(op: latent_ops.AbsorbQuery, to: Lowering) -> bool:
    return isinstance(op.key_up, PackedHeadLinear)


@_is_alike.register
def _write(op: latent_ops.WriteLatent, to: Lowering) -> bool:
    return True


@_is_alike.register
def _attend(op: latent_ops.AttendLatent, to: Lowering) -> bool:
    row_dim = op.query.width // op.num_heads
    return row_dim % HEAD_DIM_STEP == 0 and op.scale > 0


@_is_alike.register
def _heads(op: latent_ops.HeadProduct, to: Lowering) -> bool:
    return isinstance(op.matrix, PackedHeadLinear)


@_is_alike.register
def _route(op: mixture_ops.RouteExperts, to: Lowering) -> bool:
    return True


@_is_alike.register
def _count(op: mixture_ops.CountPicks, to: Lowering) -> bool:
    return True


@_is_alike.register
def _add(op: mixture_ops.AddRows, to: Lowering) -> bool:
    return True


@_is_alike.register
def _experts(op: mixture_ops.RunExperts, to: Lowering) -> bool:
    experts = op.experts.experts if isinstance(op.experts, PlacedExperts) else op.experts
    return isinstance(experts, SortedExperts) and all(
        isinstance(matrix, NativeMatrix) for matrix in experts.matrices()
    )
