"""The implementations under test, and random inputs of the shapes that decoders have."""

from __future__ import annotations

import functools
import shutil

import pytest
import torch

from cluster.home import kernels_folder
from kernels.cpu.levels import LEVELS, Level
from kernels.cpu.native_library import load_library, native_library
from kernels.cpu.native_sources import COMPILERS, NativeLibrary, own_levels
from kernels.dispatch.kernel_sets import REFERENCE, TORCH_CPU, native_set
from kernels.kv_rows import write_rows
from kernels.paged_queries import KV_SCALE_BYTES, PagedQueryTables
from kernels.tape.kernel_set import KernelSet

NATIVE_SETS = [level.name for level in LEVELS]
CPU_SETS = ["torch", *NATIVE_SETS]
OTHERS = {"reference": REFERENCE, "torch": TORCH_CPU}
DTYPES = [torch.float32, torch.bfloat16]
QUANTIZED = [torch.int8, torch.float8_e4m3fn]


def cpu_set(name: str) -> KernelSet:
    """ "native" is what the process has opened, else the best of this CPU. Skips the test where the
    set cannot run."""
    if name in OTHERS:
        return OTHERS[name]
    opened = native_library() if name == "native" else None
    return native_set(opened or native_library_of(name))


def native_library_of(name: str) -> NativeLibrary:
    """Of that level, or the best of this CPU for "native". Skips the test where the CPU lacks it or
    nothing can be compiled; sources that do not compile fail it."""
    level = next((each for each in own_levels() if name in (each.name, "native")), None)
    if level is None:
        pytest.skip(f"not a CPU for {name} kernels")
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip("no C++ compiler")
    return _loaded(level)


@functools.cache
def _loaded(level: Level) -> NativeLibrary:
    return load_library(kernels_folder(), level=level)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """Float32: sums in another order. Narrow types: one rounding of values of size one to four."""
    if dtype is torch.float32:
        return {"rtol": 2e-5, "atol": 2e-5}
    return {"rtol": 2e-2, "atol": 2e-2}


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def random_pool_layer(
    num_blocks: int, num_kv_heads: int, block_size: int, head_dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """The middle layer of a pool of three: strided over blocks, as in use."""
    shape = (num_blocks, 3, 2, num_kv_heads, block_size, head_dim)
    return random(*shape, dtype=dtype, seed=1)[:, 1]


def quantized_pool_layer(
    num_blocks: int, num_kv_heads: int, block_size: int, head_dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """As `random_pool_layer`, of a quantized pool (kernels/kv_rows.py), every row written."""
    shape = (num_blocks, 3, 2, num_kv_heads, block_size, head_dim + KV_SCALE_BYTES)
    layer = torch.zeros(shape, dtype=torch.uint8).view(dtype)[:, 1]
    slots = torch.arange(num_blocks * block_size)
    for plane in range(2):
        rows = random(len(slots), num_kv_heads, head_dim, dtype=torch.float32, seed=plane)
        write_rows(layer, plane, slots, rows)
    return layer


def paged_queries(
    sequences: list[tuple[int, int]], num_blocks: int, block_size: int
) -> PagedQueryTables:
    """From (query tokens, context tokens) per sequence; blocks are scattered over the pool."""
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(2)).tolist()
    tables: list[list[int]] = []
    for _, context_len in sequences:
        tables.append([order.pop() for _ in range(-(-context_len // block_size))])
    width = max(map(len, tables))
    starts = torch.tensor([0] + [query_len for query_len, _ in sequences]).cumsum(0)
    return PagedQueryTables(
        query_starts=starts.to(torch.int32),
        context_lens=torch.tensor([context for _, context in sequences], dtype=torch.int32),
        block_tables=torch.tensor([t + [0] * (width - len(t)) for t in tables], dtype=torch.int32),
        num_decodes=sum(query_len == 1 for query_len, _ in sequences),
        max_query_len=max(query_len for query_len, _ in sequences),
        max_context_len=max(context for _, context in sequences),
    )
