"""The kernels of adapters, as a GPU's compiler is to see them."""

from __future__ import annotations

from kernels.triton import adapter_decode, adapter_prefill
from tests.kernels.compile_case import BF16, F32, I32, Case

_TABLES = {"slots": I32, "starts": I32, "ranks": I32}
_SHRINK = {"x": BF16, "down": BF16, "made": F32, **_TABLES}
_EXPAND = {"up": BF16, "out": BF16, "made": F32, **_TABLES}
_TILES = {"ROWS": adapter_prefill._ROWS, "RANKS": adapter_prefill._RANKS}

ADAPTERS = [
    Case(
        name="adapter_decode/shrink",
        kernel=adapter_decode._shrink_row,
        constants={"RANKS": adapter_decode._RANKS, "INPUTS": adapter_decode._INPUTS},
        pointers=_SHRINK,
        aligned=("num_inputs",),
    ),
    Case(
        name="adapter_decode/expand",
        kernel=adapter_decode._expand_row,
        constants={"RANKS": adapter_decode._RANKS, "COLUMNS": adapter_decode._COLUMNS},
        pointers=_EXPAND,
        aligned=("width", "out_width"),
    ),
    Case(
        name="adapter_prefill/shrink",
        kernel=adapter_prefill._shrink_tile,
        constants={**_TILES, "INPUTS": adapter_prefill._INPUTS},
        pointers=_SHRINK,
        aligned=("num_inputs",),
    ),
    Case(
        name="adapter_prefill/expand",
        kernel=adapter_prefill._expand_tile,
        constants={**_TILES, "COLUMNS": adapter_prefill._COLUMNS},
        pointers=_EXPAND,
        aligned=("width", "out_width"),
    ),
]
