"""A Triton kernel as a GPU's compiler is to see it, and what the compiler says it needs.

Compiled without a GPU; in a process of its own, because the interpreter and the compiler cannot
share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.triton.gpu import HOPPER, Gpu
from tests.kernels.machine_code import copy_loop_length, traits, usage

REGISTERS, PROCESSOR_SHARED_BYTES, PROCESSOR_WARPS = 65_536, 228 * 1024, 64
BF16, F16, F32, F8, I8, I32, I64 = "*bf16", "*fp16", "*fp32", "*fp8e4nv", "*i8", "*i32", "*i64"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel with its constants, its pointers' types, and its launch options.

    Other arguments are 32-bit counts; `floats` names those that are float32. Pointers and, by
    `aligned`, strides are multiples of 16, as at run time.
    """

    name: str
    kernel: Any
    constants: dict[str, Any]
    pointers: dict[str, str]
    floats: tuple[str, ...] = ("scale", "eps")
    aligned: tuple[str, ...] = ()
    num_warps: int = 4
    num_stages: int = 3
    options: dict[str, Any] = field(default_factory=dict)
    may_spill_bytes: int = 0
    """Per thread; what is over zero has its reason beside it."""
    programs_per_processor: int = 1
    """That the launch counts on being resident at once."""
    traits: frozenset[str] = frozenset()
    """That its machine code has on a Hopper; see machine_code.py."""
    loop_bytes: int = 0
    """Of KV that a program reads in one turn of its innermost loop."""
    max_per_byte: float = 0.0
    """Instructions, by all warps together, for each of these."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Per thread and per program."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    missing: tuple[str, ...]
    """Traits that the case has and the code has not."""
    loop_instructions: int
    """Of all warps in one turn of the innermost loop that reads; 0 where nobody asked."""

    def resident(self, num_warps: int) -> int:
        """Programs that a Hopper processor holds at once."""
        by_registers = REGISTERS // (self.registers * 32 * num_warps)
        by_memory = PROCESSOR_SHARED_BYTES // (self.shared_bytes + 1024)
        return min(by_registers, by_memory, PROCESSOR_WARPS // num_warps)


def compile_case(case: Case, gpu: Gpu = HOPPER) -> Needs:
    """Raises what the compiler raises."""
    names = case.kernel.arg_names
    signature = {name: _type(case, name) for name in names}
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        if name in case.pointers or name in case.aligned
    }
    source = ASTSource(case.kernel, signature, constexprs=case.constants, attrs=attributes)
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages, **case.options}
    major, minor = gpu.capability
    target = GPUTarget("cuda", major * 10 + minor, 32)
    compiled = triton.compile(source, target, options=options)
    registers, spilled = usage(compiled.asm["cubin"])
    loop = copy_loop_length(compiled.asm["cubin"]) if case.loop_bytes else 0
    return Needs(
        registers=registers,
        spilled_bytes=spilled,
        shared_bytes=compiled.metadata.shared,
        missing=tuple(sorted(case.traits - traits(compiled.asm["ptx"]))),
        loop_instructions=loop * case.num_warps,
    )


def _type(case: Case, name: str) -> str:
    if name in case.constants:
        return "constexpr"
    return case.pointers.get(name, "fp32" if name in case.floats else "i32")
