"""The native library is open, as after a load on a CPU.

One thread: tensors this small only lose by being shared out over busy cores.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from cluster.home import kernels_folder
from kernels.cpu.native_library import open_library
from kernels.cpu.team import TEAM


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    torch_threads, team = torch.get_num_threads(), TEAM.num_threads
    torch.set_num_threads(1)
    TEAM.resize(1)
    yield
    torch.set_num_threads(torch_threads)
    TEAM.resize(team)


@pytest.fixture(scope="session", autouse=True)
def native_kernels() -> None:
    open_library(kernels_folder())
