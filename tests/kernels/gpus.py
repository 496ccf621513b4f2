"""Kinds of GPU that kernels are compiled and formats are chosen for, where none is."""

from __future__ import annotations

from kernels.triton.gpu import Gpu

AMPERE = Gpu(capability=(8, 0), shared_bytes=163 * 1024)
ADA = Gpu(capability=(8, 9), shared_bytes=99 * 1024)
BLACKWELL = Gpu(capability=(10, 0), shared_bytes=227 * 1024)
