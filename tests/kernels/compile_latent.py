"""The kernels of multi-head latent attention with the shapes of DeepSeek-V2 and V3."""

from __future__ import annotations

from kernels.triton import decode_latent, prefill_latent, write_latent
from kernels.triton.gpu import HOPPER, Gpu
from kernels.triton.tuning import decode_latent_tiles, prefill_latent_tiles
from tests.kernels.compile_attention import BLOCK, PARTS, STRIDES, TABLES, split_constants
from tests.kernels.compile_case import BF16, F8, F32, I8, I64, Case

LATENT_SPILL_BYTES = 320
"""64 rows of 512 sums take 128 registers of every thread: about ten values that a loop only reads
come back from the stack, beside sixty products of matrices in the same iteration."""
LATENT = {
    "ROW_DIM": 576,
    "VALUE_DIM": 512,
    "BLOCK": BLOCK,
    "WIDTH": 512,
    "REST": 64,
}


def decode_latent_case(num_heads: int, pool: str = BF16, gpu: Gpu = HOPPER) -> Case:
    """Sixteen sequences."""
    rows, tiles = decode_latent_tiles(num_heads, 2 if pool == BF16 else 1, gpu)
    return Case(
        name=f"decode_latent/{num_heads}{pool}",
        kernel=decode_latent._attend_split,
        constants={
            **LATENT,
            **split_constants(tiles),
            "ROW_WIDTH": 576 + 4 * (pool != BF16),
            "NUM_HEADS": num_heads,
            "BATCH": 16,
            "ROWS": rows,
        },
        pointers={"query": BF16, "kv_layer": pool, "out": BF16, **TABLES, **PARTS},
        aligned=STRIDES,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        may_spill_bytes=LATENT_SPILL_BYTES if rows == 64 else 0,
        programs_per_processor=tiles.programs_per_processor,
    )


def prefill_latent_case(num_heads: int, gpu: Gpu = HOPPER) -> Case:
    """Any chunk."""
    tiles = prefill_latent_tiles(2, gpu)
    return Case(
        name=f"prefill_latent/{num_heads}",
        kernel=prefill_latent._attend_tile,
        constants={
            **LATENT,
            "ROW_WIDTH": 576,
            "NUM_HEADS": num_heads,
            "ROWS": tiles.rows,
            "CHUNK": tiles.chunk,
        },
        pointers={"query": BF16, "kv_layer": BF16, "out": BF16, **TABLES},
        aligned=STRIDES,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        may_spill_bytes=LATENT_SPILL_BYTES,
    )


LATENTS = [
    decode_latent_case(128),
    decode_latent_case(16, F8),
    prefill_latent_case(16),
    Case(
        name="write_latent",
        kernel=write_latent._write_latent,
        constants={
            "NUM_HEADS": 16,
            "RANK": 512,
            "HALF": 32,
            "ROW_WIDTH": 580,
            "ROUNDS": True,
            "BLOCK": BLOCK,
            "HEADS": 32,
            "WIDTH": 512,
            "HALF_WIDTH": 32,
        },
        pointers={
            "query": BF16,
            "latent": BF16,
            "weight": F32,
            "cos_sin": F32,
            "positions": I64,
            "slots": I64,
            "kv_layer": I8,
        },
        floats=("eps", "largest"),
        aligned=("latent_stride", "block_stride"),
    ),
]


def other_latents(gpu: Gpu) -> list[Case]:
    """As `other_attention`."""
    return [decode_latent_case(128, gpu=gpu), prefill_latent_case(16, gpu=gpu)]
