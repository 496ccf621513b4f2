"""The interpreter accepts what the compiler does not; so the compiler is asked, too.

`make test` asks for one case or more of each kernel, and for the GPU whose shared memory is least;
`make test-more` for every row of the table of tiles, and for the other GPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernels.triton.gpu import HOPPER
from tests.kernels.gpus import ADA, AMPERE, BLACKWELL

MORE = pytest.mark.minutes
HOPPERS = [
    pytest.param(["attention", "latent", "elementwise", "sampling"], id="attention"),
    pytest.param(["low_bit", "mixture", "adapters"], id="products"),
    pytest.param(["resident"], id="resident", marks=MORE),
]
"""Groups that share a process, whose start takes as long as two kernels."""
TIMEOUT_S = 900
"""Far more than a busy machine takes."""
pytestmark = [pytest.mark.compiles, pytest.mark.timeout(TIMEOUT_S + 60)]
OTHERS = {"ampere": AMPERE, "ada": ADA, "small": ADA, "blackwell": BLACKWELL}
OTHER_GPUS = [
    pytest.param(["ada"], id="ada"),
    pytest.param(["small"], id="small"),
    pytest.param(["ampere", "blackwell"], id="ampere and blackwell", marks=MORE),
]
OTHERS_SPILL_BYTES = 320
"""Of a thread, where the tiles were not counted: slower, not wrong."""


@dataclass(frozen=True, slots=True)
class Line:
    """What compile_for_gpu prints of a kernel."""

    group: str
    name: str
    registers: int
    spilled_bytes: int
    may_spill_bytes: int
    shared_bytes: int
    resident: int
    counted_on: int
    per_byte: float
    max_per_byte: float
    missing: str

    @classmethod
    def parse(cls, text: str) -> Line:
        group, name, *sizes, per_byte, most, missing = text.split()
        return cls(group, name, *map(int, sizes), float(per_byte), float(most), missing)


def compiled(groups: list[str], folder: Path) -> list[Line]:
    """`folder` keeps what was compiled for the next run, by source, options and compiler."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_for_gpu", *groups],
        env={**environment, "TRITON_CACHE_DIR": str(folder)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [Line.parse(text) for text in done.stdout.splitlines()]
    counts = Counter(line.group for line in lines)
    assert list(counts) == groups and min(counts.values()) >= 3
    return lines


@pytest.mark.parametrize("groups", HOPPERS)
def test_every_kernel_compiles_for_a_gpu_and_fits_its_registers_and_shared_memory(
    groups: list[str], cache: pytest.Cache
) -> None:
    for line in compiled(groups, cache.mkdir("triton")):
        assert 8 <= line.registers <= 255, line
        assert line.spilled_bytes <= line.may_spill_bytes, line
        assert line.shared_bytes <= HOPPER.shared_bytes, line
        assert line.resident >= line.counted_on, line
        assert line.per_byte <= line.max_per_byte, line
        assert line.missing == "-", line


@pytest.mark.parametrize("groups", OTHER_GPUS)
def test_tiles_fit_the_shared_memory_of_other_gpus(groups: list[str], cache: pytest.Cache) -> None:
    for line in compiled(groups, cache.mkdir("triton")):
        assert line.shared_bytes <= OTHERS[line.group].shared_bytes, line
        assert line.spilled_bytes <= OTHERS_SPILL_BYTES, line
