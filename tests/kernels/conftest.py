"""The native library is open, as in an engine that has loaded a model on a CPU: for the best level
that this CPU has, or for each in turn."""

from __future__ import annotations

import pytest

from cluster.home import kernels_folder
from kernels.cpu import native_library
from kernels.cpu.native_library import open_library
from tests.kernels.kernel_sets import NATIVE_SETS, native_library_of


@pytest.fixture(scope="session", autouse=True)
def native_kernels() -> None:
    open_library(kernels_folder())


@pytest.fixture(params=NATIVE_SETS)
def every_level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of this level is the one that the process has opened, and is `cpu_set("native")`.
    Skips the test where the CPU lacks it."""
    monkeypatch.setattr(native_library, "_opened", native_library_of(request.param))
