"""Routing and experts."""

from __future__ import annotations

from kernels.triton import align_pairs, expert_products, experts, route_experts
from kernels.triton.expert_tiles import FEW_ROWS, expert_tiles
from tests.kernels.compile_case import BF16, F8, F16, F32, I32, I64, Case

PRODUCTS = {
    "gate_up": expert_products.multiply_gate_up,
    "down": expert_products.multiply_down,
}
PAIRS = {"ids": I64, "pairs": I32, "experts": I32}


def _product(which: str, kind: str, num_rows: int) -> Case:
    """Of 128 experts, 8 per row."""
    tiles = expert_tiles(num_rows, 8 * num_rows, 128, is_packed=kind != "plain")
    is_few = num_rows <= FEW_ROWS
    bits = {"plain": 16, "int4": 4, "fp8": 8}[kind]
    return Case(
        name=f"experts_{which}/{kind}/{num_rows}-rows",
        kernel=PRODUCTS[which],
        constants={
            "IS_FEW": is_few,
            "BY_PAIR": 8 * num_rows <= 128,
            "PAIRS": 8 * num_rows if is_few else 1,
            "BITS": bits,
            "WIDTH": 64 if kind == "plain" else 128,
            "HAS_MINIMUMS": kind == "int4",
            "ROWS": tiles.rows,
            "COLUMNS": tiles.columns,
        },
        pointers={
            "x": BF16,
            **PAIRS,
            "values": {"plain": BF16, "int4": "*u8", "fp8": F8}[kind],
            "scales": F16,
            "minimums": F16,
            "factors": F32,
            "out": BF16,
        },
        aligned=("x_stride", "in_features", "out_features", "size"),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


MIXTURE = [
    Case(
        name="route_row",
        kernel=route_experts._route_row,
        constants={
            "NUM_CHOSEN": 8,
            "NUM_GROUPS": 8,
            "NUM_CHOSEN_GROUPS": 4,
            "BEST_TWO": True,
            "IS_SOFTMAX": False,
            "NORMALIZES": True,
            "HAS_BIAS": True,
            "WIDTH": 256,
            "CHOSEN_WIDTH": 8,
        },
        pointers={"logits": F32, "bias": F32, "ids": I64, "weights": F32},
        floats=("scaling_factor", "smallest_sum"),
        num_warps=1,
    ),
    Case(
        name="count_pairs",
        kernel=align_pairs._count_pairs,
        constants={"CHUNK": 1024, "EXPERTS": 128},
        pointers={"ids": I64, "counts": I32},
    ),
    Case(
        name="plan_tiles",
        kernel=align_pairs._plan_tiles,
        constants={"ROWS": 64, "EXPERTS": 128},
        pointers={"counts": I32, "cursors": I32, "experts": I32},
    ),
    Case(
        name="place_pairs",
        kernel=align_pairs._place_pairs,
        constants={"CHUNK": 1024},
        pointers={"ids": I64, "cursors": I32, "pairs": I32},
    ),
    *(_product("gate_up", "plain", num_rows) for num_rows in (1, 32, 64, 512, 4096)),
    *(
        _product("gate_up", kind, num_rows)
        for kind in ("int4", "fp8")
        for num_rows in (1, 64, 512, 4096)
    ),
    _product("down", "plain", 1),
    _product("down", "plain", 4096),
    Case(
        name="sum_pairs",
        kernel=experts._sum_pairs,
        constants={"COLUMNS": 1024},
        pointers={"branches": BF16, "weights": F32, "out": BF16},
    ),
]
