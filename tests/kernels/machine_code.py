"""What a compiled kernel is made of: how it reads and multiplies, and its work for each byte."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import triton

WGMMA = "wgmma"
"""Products of a whole warp group, from shared memory: full speed on a Hopper."""
ASYNC_16 = "async16"
"""Every copy to shared memory is one of 16 bytes that no register waits for."""
VECTORS = "vectors"
"""Memory is read 16 bytes at a time."""
NO_BYTES = "no-bytes"
"""Shared memory is never read byte by byte."""
_TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(.+?);")
_JUMP = re.compile(r"\bBRA\b.*?(\.L_x_\d+)")


def traits(ptx: str) -> set[str]:
    """Those of the above that hold."""
    copies = set(re.findall(r"cp\.async\.c[ag]\.shared\.global.*?(0x\w+)", ptx))
    found = {
        WGMMA: "wgmma.mma_async" in ptx,
        ASYNC_16: copies == {"0x10"},
        VECTORS: re.search(r"ld\.global[\w.:]*\.v4", ptx) is not None,
        NO_BYTES: re.search(r"ld\.shared[\w.:]*\.[bus]8", ptx) is None,
    }
    return {name for name, holds in found.items() if holds}


def copy_loop_length(cubin: bytes) -> int:
    """Instructions of the innermost loop that copies to shared memory; 0 without such a loop."""
    instructions, loops = _loops(_disassembled(cubin))
    lengths = [
        last - first + 1
        for first, last in loops
        if any("LDGSTS" in word for word in instructions[first : last + 1])
        and not any(_is_inside(other, (first, last)) for other in loops)
    ]
    return max(lengths, default=0)


def usage(cubin: bytes) -> tuple[int, int]:
    """(registers, bytes of stack that hold what did not fit) of a thread."""
    said = _ask("cuobjdump", "--dump-resource-usage", cubin)
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {said[-300:]}")
    return int(found[1]), int(found[2])


def _disassembled(cubin: bytes) -> list[str]:
    return _ask("nvdisasm", "-c", cubin).splitlines()


def _loops(lines: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """(instructions, (first, last) of each loop): jumps that go back."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in lines:
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif instruction := _INSTRUCTION.match(line):
            instructions.append(instruction[1])
    loops = []
    for last, word in enumerate(instructions):
        jump = _JUMP.search(word)
        if jump and labels.get(jump[1], last + 1) <= last:
            loops.append((labels[jump[1]], last))
    return instructions, loops


def _is_inside(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def _ask(tool: str, flag: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_TOOLS / tool), flag, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
