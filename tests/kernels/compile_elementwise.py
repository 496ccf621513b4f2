"""The kernels between matrices."""

from __future__ import annotations

from kernels.triton import rms_norm, rope_write_kv, silu_mul
from tests.kernels.compile_case import BF16, F32, I64, Case

ELEMENTWISE = [
    Case(
        name="add_rms_norm/1024",
        kernel=rms_norm._rms_norm,
        constants={"HAS_BRANCH": True, "WIDTH": 1024},
        pointers={"branch": BF16, "residual": F32, "weight": F32, "out": BF16},
    ),
    Case(
        name="silu_mul",
        kernel=silu_mul._silu_mul,
        constants={"WIDTH": 1024},
        pointers={"gate_up": BF16, "out": BF16},
    ),
    Case(
        name="rope_write_kv/64",
        kernel=rope_write_kv._rope_write_kv,
        constants={"HALF": 32, "WIDTH": 32},
        pointers={"qkv": BF16, "cos_sin": F32, "positions": I64, "slots": I64, "kv_layer": BF16},
    ),
]
