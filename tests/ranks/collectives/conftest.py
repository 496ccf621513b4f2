"""The native collectives, where this machine can have them."""

from __future__ import annotations

import ctypes

import pytest

from kernels.cpu.native_sources import NativeUnavailable
from ranks.collectives.native_calls import load_collectives


@pytest.fixture(scope="session")
def native_collectives() -> ctypes.CDLL:
    """Built if need be, before ranks start that would all build it."""
    try:
        return load_collectives()
    except NativeUnavailable as reason:
        pytest.skip(str(reason))
