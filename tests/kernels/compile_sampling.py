"""Sampling, and KV blocks as a whole."""

from __future__ import annotations

from kernels.triton import (
    block_copy,
    block_digest,
    mask_logits,
    sample_candidates,
    sample_draw,
    sample_maxima,
)
from tests.kernels.compile_case import F32, I32, I64, Case

F64 = "*fp64"
LIMITS = {"temperatures": F32, "top_k": I32, "top_p": F64, "min_gaps": F32, "keys": I64}
ROWS = {"logits": F32, "part_maxima": F32, "part_ids": I32, "part_masses": I64}
FOUND = {"starts": I32, "cuts": I32, "num_candidates": I32, "values": F32, "ids": I32}

SAMPLING = [
    Case(
        name="find_maxima",
        kernel=sample_maxima.find_maxima,
        constants={},
        pointers=ROWS,
        num_warps=8,
    ),
    Case(
        name="count_buckets",
        kernel=sample_candidates.count_buckets,
        constants={"SPLITS": 32},
        pointers={**ROWS, **LIMITS, "counts": I32},
        num_warps=8,
    ),
    Case(
        name="choose_bucket",
        kernel=sample_candidates.choose_bucket,
        constants={"SPLITS": 32},
        pointers={**ROWS, **LIMITS, **FOUND, "counts": I32},
    ),
    Case(
        name="collect_candidates",
        kernel=sample_candidates.collect_candidates,
        constants={"SPLITS": 32},
        pointers={**ROWS, **LIMITS, **FOUND},
        num_warps=8,
    ),
    *(
        Case(
            name=f"draw_row/limits={has_limits}",
            kernel=sample_draw.draw_row,
            constants={"SPLITS": 32, "HAS_LIMITS": has_limits},
            pointers={**ROWS, **LIMITS, **FOUND, "maxima": F32, "drawn": I64},
            num_warps=8,
            may_spill_bytes=16,  # of 64-bit logarithms, taken for a few chunks of a row
        )
        for has_limits in (True, False)
    ),
    Case(
        name="mask_logits",
        kernel=mask_logits.ban_tokens,
        constants={},
        pointers={"logits": F32, "rows": I64, "words": I32},
        num_warps=8,
    ),
    Case(
        name="block_copy",
        kernel=block_copy._copy_tile,
        constants={"TILE": 2048},
        pointers={"source": I64, "source_ids": I64, "target": I64, "target_ids": I64},
    ),
    Case(
        name="block_digest",
        kernel=block_digest._digest_slice,
        constants={"TILE": 512},
        pointers={"halves": I32, "block_ids": I64, "weights": I32, "out": I64},
    ),
]
