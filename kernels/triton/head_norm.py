"""Root-mean-square norm of each head of Q and K, in place, before they are rotated."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_same_device
from kernels.reference.head_norm import check_head_norm
from kernels.triton.launch import next_power_of_2, on_device_of
from kernels.triton.tuning import norm_tile


# grid [cdiv(num_tokens * (num_heads + num_kv_heads), ROWS)]
@triton.jit(do_not_specialize=("num_tokens",))
def _head_norm(
    qkv,
    query_weight,
    key_weight,
    eps,
    num_tokens,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    NORMED: tl.constexpr = NUM_HEADS + NUM_KV_HEADS
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    token, head = rows // NORMED, rows % NORMED
    in_head = columns < HEAD_DIM
    inside = (token < num_tokens)[:, None] & in_head[None, :]
    first = (token.to(tl.int64) * (NORMED + NUM_KV_HEADS) + head) * HEAD_DIM
    at = qkv + first[:, None] + columns[None, :]
    of_query = tl.load(query_weight + columns, mask=in_head, other=0.0)
    of_key = tl.load(key_weight + columns, mask=in_head, other=0.0)
    weight = tl.where((head < NUM_HEADS)[:, None], of_query[None, :], of_key[None, :])
    value = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=1) / HEAD_DIM + eps)
    normed = value * scale[:, None] * weight
    tl.store(at, normed.to(qkv.dtype.element_ty), mask=inside)


def head_norm(
    qkv: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    eps: float,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    """See kernels/reference/head_norm.py."""
    head_dim = check_head_norm(qkv, query_weight, key_weight, num_heads, num_kv_heads)
    require_contiguous("qkv", qkv)
    require_same_device(qkv, query_weight, key_weight)
    num_tokens = qkv.shape[0]
    if num_tokens == 0:
        return
    tile = norm_tile(next_power_of_2(head_dim))
    with on_device_of(qkv):
        _head_norm[(triton.cdiv(num_tokens * (num_heads + num_kv_heads), tile.rows),)](
            qkv,
            query_weight,
            key_weight,
            eps,
            num_tokens,
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            ROWS=tile.rows,
            WIDTH=tile.width,
            num_warps=tile.num_warps,
        )
