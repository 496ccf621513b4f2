"""The interpreter accepts what the compiler does not; so the compiler is asked, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOPPER_SHARED_BYTES = 227 * 1024
GROUPS = ["attention", "latent", "elementwise", "sampling", "low_bit", "mixture"]


@pytest.mark.parametrize("group", GROUPS)
def test_every_kernel_compiles_for_a_gpu_and_fits_its_registers_and_shared_memory(
    group: str, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_for_gpu", group],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    needs = [line.split() for line in done.stdout.splitlines()]
    assert len(needs) >= 3
    for name, registers, spilled_bytes, may_spill_bytes, shared_bytes in needs:
        assert 8 <= int(registers) <= 255, name
        assert int(spilled_bytes) <= int(may_spill_bytes), name
        assert int(shared_bytes) <= HOPPER_SHARED_BYTES, name
