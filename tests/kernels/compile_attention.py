"""The attention kernels with the tiles that `kernels.triton.tuning` gives to real models."""

from __future__ import annotations

from kernels.triton import (
    decode_attention,
    merge_splits,
    prefill_attention,
    verify_attention,
)
from kernels.triton.gpu import HOPPER, Gpu
from kernels.triton.tuning import (
    DecodeTiles,
    HeadsShape,
    decode_tiles,
    prefill_tiles,
    verify_tiles,
)
from tests.kernels.compile_case import BF16, F8, F32, I8, I32, Case
from tests.kernels.machine_code import ASYNC_16, NO_BYTES, WGMMA

BLOCK = 16
TABLES = {"context_lens": I32, "block_tables": I32, "query_starts": I32}
PARTS = {"part_sums": F32, "part_logs": F32, "context_lens": I32}
STRIDES = ("query_stride", "out_stride", "block_stride")
QUANTIZED_SPILL_BYTES = 64
"""Triton 3.6 keeps a few values of the conversion from one byte on the stack; 3.9 none."""
OTHER_SPILL_BYTES = {BF16: 0, F32: 16}
"""float32 is the exact dtype, not the fast one."""
INSTRUCTIONS_PER_BYTE = 0.15
"""An H100 issues four instructions in the time in which its memory gives 15 bytes to a processor:
0.27 each. Bfloat16 pools take 0.05 to 0.06, 0.10 with a group of 32 heads."""
CONVERTED_PER_BYTE = 0.6
"""Pools of one byte take 0.26 with four warps, 0.53 with eight, and float32, which is multiplied
exactly, 0.2: bound by this, not by memory."""
SHORT = 64
"""Tokens of a chunk up to which a tile may be a small one."""
BYTES = {BF16: 2, I8: 1, F8: 1, F32: 4}


def split_constants(tiles: DecodeTiles) -> dict[str, int]:
    return {
        "MIN_SPLIT": tiles.min_split,
        "MAX_SPLITS": tiles.max_splits,
        "CHUNK": tiles.chunk,
    }


def _shapes(head_dim: int, group: int, kv_heads: int, pool: str, window: int) -> dict[str, int]:
    return {
        "GROUP": group,
        "NUM_KV_HEADS": kv_heads,
        "HEAD_DIM": head_dim,
        "ROW_WIDTH": head_dim + (4 if BYTES[pool] == 1 else 0),
        "BLOCK": BLOCK,
        "WIDTH": head_dim,
        "WINDOW": window,
    }


def decode_case(
    head_dim: int, group: int, kv_heads: int, pool: str = BF16, window: int = 0
) -> Case:
    """Sixteen sequences."""
    own = F32 if pool == F32 else BF16
    tiles = decode_tiles(head_dim, group, kv_heads, BYTES[pool])
    return Case(
        name=f"decode_attention/{head_dim}x{group}{pool}{'w' * bool(window)}",
        kernel=decode_attention._attend_split,
        constants={
            **_shapes(head_dim, group, kv_heads, pool, window),
            **split_constants(tiles),
            "BATCH": 16,
            "ROWS": max(16, 1 << (group - 1).bit_length()),
        },
        pointers={"query": own, "kv_layer": pool, "out": own, **TABLES, **PARTS},
        aligned=STRIDES,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        may_spill_bytes=OTHER_SPILL_BYTES.get(pool, QUANTIZED_SPILL_BYTES),
        programs_per_processor=tiles.programs_per_processor,
        traits=frozenset({ASYNC_16, NO_BYTES} if pool == BF16 else ()),
        loop_bytes=2 * tiles.chunk * head_dim * BYTES[pool],
        max_per_byte=INSTRUCTIONS_PER_BYTE if pool == BF16 else CONVERTED_PER_BYTE,
    )


def verify_case(
    head_dim: int,
    group: int,
    kv_heads: int,
    each: int,
    pool: str = BF16,
    window: int = 0,
    gpu: Gpu = HOPPER,
) -> Case:
    """Sixteen sequences with so many rows each."""
    own = F32 if pool == F32 else BF16
    heads = HeadsShape(
        head_dim=head_dim,
        group=group,
        num_kv_heads=kv_heads,
        query_bytes=BYTES[own],
        value_bytes=BYTES[pool],
    )
    found = verify_tiles(heads, each, gpu)
    assert found is not None, "models whose rows do not fit have no drafts there"
    tokens, tiles = found
    return Case(
        name=f"verify_attention/{head_dim}x{group}x{each}{pool}{'w' * bool(window)}",
        kernel=verify_attention._attend_split,
        constants={
            **_shapes(head_dim, group, kv_heads, pool, window),
            **split_constants(tiles),
            "BATCH": 16,
            "QUERIES": each,
            "TOKENS": tokens,
            "REACH": window + each - 1 if window else 0,
            "ROWS": max(16, 1 << (group * tokens - 1).bit_length()),
        },
        pointers={"query": own, "kv_layer": pool, "out": own, **TABLES, **PARTS},
        aligned=STRIDES,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        may_spill_bytes=OTHER_SPILL_BYTES.get(pool, QUANTIZED_SPILL_BYTES),
    )


def prefill_case(
    head_dim: int,
    group: int,
    pool: str = BF16,
    window: int = 0,
    query_len: int = 8192,
    gpu: Gpu = HOPPER,
) -> Case:
    """Eight KV heads; `query_len` is the longest chunk of the batch."""
    tiles = prefill_tiles(head_dim, group, query_len, BYTES[pool], gpu)
    return Case(
        name=f"prefill_attention/{head_dim}x{group}x{query_len}{pool}{'w' * bool(window)}",
        kernel=prefill_attention._attend_tile,
        constants={
            **_shapes(head_dim, group, 8, pool, window),
            "ROWS": tiles.rows,
            "CHUNK": tiles.chunk,
        },
        pointers={"query": BF16, "kv_layer": pool, "out": BF16, **TABLES},
        aligned=STRIDES,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        may_spill_bytes=OTHER_SPILL_BYTES.get(pool, QUANTIZED_SPILL_BYTES),
        traits=frozenset({WGMMA, ASYNC_16, NO_BYTES} if pool == BF16 else {WGMMA})
        if query_len > SHORT and gpu is HOPPER
        else frozenset(),
    )


ATTENTION = [
    decode_case(128, 4, 8),
    decode_case(64, 8, 8, F8, window=512),
    Case(
        name="merge_splits",
        kernel=merge_splits._merge_splits,
        constants={
            **split_constants(decode_tiles(128, 4, 8, 2)),
            "HEAD_DIM": 128,
            "WIDTH": 128,
            "WINDOW": 0,
            "SPLITS": 32,
            "PARTS": 16,
            "QUERIES": 1,
        },
        pointers={**PARTS, "out": BF16},
    ),
    prefill_case(64, 3),
    prefill_case(128, 4, I8, window=4096),
    verify_case(128, 4, 8, 4),
    verify_case(128, 8, 8, 16, window=1024),
]
MORE_ATTENTION = [
    decode_case(64, 3, 3),
    decode_case(256, 2, 4, I8),
    decode_case(64, 1, 8),
    decode_case(128, 1, 8),
    decode_case(128, 8, 8),
    decode_case(128, 32, 1),
    decode_case(128, 4, 8, I8),
    decode_case(128, 4, 8, F8),
    decode_case(256, 2, 4, window=1024),
    verify_case(64, 3, 3, 2),
    verify_case(128, 4, 8, 8, I8),
    verify_case(128, 32, 1, 4),
    verify_case(256, 2, 4, 16),
    prefill_case(64, 8),
    prefill_case(128, 4),
    prefill_case(128, 4, F8),
    prefill_case(128, 4, query_len=8),
    prefill_case(256, 2, window=1024),
]
"""For a look by hand: half a minute."""


def other_attention(gpu: Gpu) -> list[Case]:
    """What depends on the size of shared memory, for a GPU that the tiles were not counted for."""
    return [
        decode_case(128, 4, 8),
        decode_case(256, 32, 1, F32),
        prefill_case(128, 4, gpu=gpu),
        prefill_case(256, 2, window=1024, gpu=gpu),
        verify_case(128, 4, 8, 16, gpu=gpu),
        verify_case(256, 4, 1, 16, gpu=gpu),
        verify_case(256, 4, 1, 16, window=512, gpu=gpu),
        verify_case(128, 4, 8, 16, F32, gpu=gpu),
        verify_case(256, 4, 1, 16, F32, gpu=gpu),
    ]


RESIDENT = [
    decode_case(head_dim, group, kv_heads, pool)
    for head_dim in (64, 128, 256)
    for pool in (BF16, I8, F8, F32)
    for group, kv_heads in ((4, 8), (32, 1))
    if pool != F8 or group == 4
]
"""Every row of the table of tiles, whose rows of one byte are those of int8 and fp8."""
