"""Compiles every Triton kernel for an H100 in bfloat16. Needs no GPU; run in a process of its own,
because the interpreter and the compiler cannot share one."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.triton import (
    decode_attention,
    prefill_attention,
    rms_norm,
    rope_write_kv,
    silu_mul,
)

TARGET = GPUTarget("cuda", 90, 32)
BF16, F32, I32, I64 = "*bf16", "*fp32", "*i32", "*i64"
HEADS = {"GROUP": 3, "NUM_KV_HEADS": 3, "HEAD_DIM": 64, "WIDTH": 64, "CHUNK": 64}
TABLES = {"context_lens": I32, "block_tables": I32, "query_starts": I32}
PARTS = {"part_sums": F32, "part_logs": F32, "context_lens": I32}

KERNELS: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    (
        decode_attention._attend_split,
        {**HEADS, "ROWS": 16, "SPLIT": 256},
        {"query": BF16, "kv_layer": BF16, **TABLES, **PARTS},
    ),
    (
        decode_attention._merge_splits,
        {"HEAD_DIM": 64, "WIDTH": 64, "SPLIT": 256},
        {**PARTS, "out": BF16},
    ),
    (
        prefill_attention._attend_tile,
        {**HEADS, "TILE": 64},
        {"query": BF16, "kv_layer": BF16, "out": BF16, **TABLES},
    ),
    (
        rms_norm._rms_norm,
        {"HAS_BRANCH": True, "WIDTH": 1024},
        {"branch": BF16, "residual": F32, "weight": F32, "out": BF16},
    ),
    (silu_mul._silu_mul, {"WIDTH": 1024}, {"gate_up": BF16, "out": BF16}),
    (
        rope_write_kv._rope_write_kv,
        {"HALF": 32, "WIDTH": 32},
        {"qkv": BF16, "cos_sin": F32, "positions": I64, "slots": I64, "kv_layer": BF16},
    ),
]


def type_of(name: str, constants: dict[str, Any], pointers: dict[str, str]) -> str:
    """Of an argument: a constant, a pointer, one of the two float scalars, or a 32-bit count."""
    if name in constants:
        return "constexpr"
    return pointers.get(name, "fp32" if name in ("scale", "eps") else "i32")


def main() -> None:
    """Prints each kernel's name and the size of its machine code."""
    for kernel, constants, pointers in KERNELS:
        signature = {name: type_of(name, constants, pointers) for name in kernel.arg_names}
        compiled = triton.compile(ASTSource(kernel, signature, constexprs=constants), TARGET)
        print(kernel.__name__, len(compiled.asm["cubin"]))


if __name__ == "__main__":
    main()
