"""No step waits for a compiler; see tests/kernels/compiles_while_serving.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.compiles_while_serving import FAMILIES

TIMEOUT_S = 900
pytestmark = [pytest.mark.compiles, pytest.mark.timeout(TIMEOUT_S + 60)]


def test_no_kernel_is_compiled_after_a_model_was_loaded(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compiles_while_serving", str(tmp_path)],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [line.partition(": ") for line in done.stdout.splitlines()]
    assert [name for name, _, _ in told] == list(FAMILIES), done.stdout
    assert all(int(at_load) >= 10 for _, _, at_load in told)
