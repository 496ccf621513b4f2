"""The interpreter accepts what the compiler does not; so the compiler is asked, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_every_kernel_compiles_for_a_gpu_in_bfloat16(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_for_gpu"],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = dict(line.split() for line in done.stdout.splitlines())
    assert len(sizes) == 6
    assert all(int(size) > 1000 for size in sizes.values())
