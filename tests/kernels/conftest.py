"""The native library is open, as in an engine that has loaded a model on a CPU."""

from __future__ import annotations

import pytest

from cluster.home import kernels_folder
from kernels.cpu.native_library import open_library


@pytest.fixture(scope="session", autouse=True)
def native_kernels() -> None:
    open_library(kernels_folder())
