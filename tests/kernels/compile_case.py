"""A Triton kernel as a GPU's compiler is to see it, and what the compiler says it needs.

Compiled without a GPU; in a process of its own, because the interpreter and the compiler cannot
share one.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.triton.gpu import HOPPER, Gpu

REGISTERS, PROCESSOR_SHARED_BYTES, PROCESSOR_WARPS = 65_536, 228 * 1024, 64
BF16, F16, F32, F8, I8, I32, I64 = "*bf16", "*fp16", "*fp32", "*fp8e4nv", "*i8", "*i32", "*i64"
_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


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


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Per thread and per program."""

    registers: int
    spilled_bytes: int
    shared_bytes: int

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
    registers, spilled = _usage(compiled.asm["cubin"])
    return Needs(registers=registers, spilled_bytes=spilled, shared_bytes=compiled.metadata.shared)


def _type(case: Case, name: str) -> str:
    if name in case.constants:
        return "constexpr"
    return case.pointers.get(name, "fp32" if name in case.floats else "i32")


def _usage(cubin: bytes) -> tuple[int, int]:
    """(registers, bytes of stack that hold what did not fit) of a thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_CUOBJDUMP), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {said[-300:]}")
    return int(found[1]), int(found[2])
