"""The kernels between matrices."""

from __future__ import annotations

from kernels.triton import gated_mul, head_norm, rms_norm, rope_write_kv
from kernels.triton.tuning import norm_tile
from tests.kernels.compile_case import BF16, F8, F32, I8, I64, Case
from tests.kernels.machine_code import VECTORS

READS = frozenset({VECTORS})


def norm_case(hidden: int, width: int) -> Case:
    """Fused with the addition."""
    tile = norm_tile(width)
    return Case(
        name=f"add_rms_norm/{hidden}",
        kernel=rms_norm._rms_norm,
        constants={"HIDDEN": hidden, "HAS_BRANCH": True, "ROWS": tile.rows, "WIDTH": width},
        pointers={"branch": BF16, "residual": F32, "weight": F32, "out": BF16},
        num_warps=tile.num_warps,
        traits=READS,
    )


def write_case(head_dim: int, pool: str) -> Case:
    """32 query and 8 KV heads."""
    quantized = pool != BF16
    return Case(
        name=f"rope_write_kv/{head_dim}{pool}",
        kernel=rope_write_kv._rope_write_kv,
        constants={
            "NUM_HEADS": 32,
            "NUM_KV_HEADS": 8,
            "BLOCK": 16,
            "HALF": head_dim // 2,
            "ROW_WIDTH": head_dim + 4 * quantized,
            "ROUNDS": pool == I8,
            "HEADS": 2048 // head_dim,
            "WIDTH": head_dim // 2,
        },
        pointers={"qkv": BF16, "cos_sin": F32, "positions": I64, "slots": I64, "kv_layer": pool},
        floats=("largest",),
        aligned=("block_stride",),
        traits=READS,
    )


ELEMENTWISE = [
    norm_case(576, 1024),
    norm_case(7168, 8192),
    Case(
        name="head_norm/128",
        kernel=head_norm._head_norm,
        constants={
            "NUM_HEADS": 32,
            "NUM_KV_HEADS": 8,
            "HEAD_DIM": 128,
            "ROWS": norm_tile(128).rows,
            "WIDTH": 128,
        },
        pointers={"qkv": BF16, "query_weight": F32, "key_weight": F32},
        traits=READS,
    ),
    Case(
        name="gated_mul",
        kernel=gated_mul._gated_mul,
        constants={"WIDTH": 1024, "GELU": True},
        pointers={"gate_up": BF16, "out": BF16},
        aligned=("inner",),
        traits=READS,
    ),
    *(write_case(128, pool) for pool in (BF16, I8, F8)),
]
