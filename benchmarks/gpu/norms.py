"""Kernels between matrices, beside the copy bandwidth: goal 90 % of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.gpu.timing import GpuFloor, Work, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.dispatch.kernel_sets import triton_set
from kernels.gated_mul import GateActivation
from kernels.tape.kernel_set import KernelSet

PART = 0.9
HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, BLOCK = 4096, 14336, 32, 8, 128, 16
ALL_HEADS = HEADS + 2 * KV_HEADS
TOKENS = (16, 256, 8192)
EPS = 1e-5

Call = tuple[int, Work]
"""Bytes that have to be touched, and the work on inputs of its own."""


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    kernels = triton_set()
    return [_row(kernels, name, num_tokens, floor) for name in CALLS for num_tokens in TOKENS]


def _row(kernels: KernelSet, name: str, num_tokens: int, floor: GpuFloor) -> Row:
    num_bytes, first = CALLS[name](kernels, num_tokens, "cuda", torch.bfloat16)
    works = [first]
    for _ in range(num_copies(num_bytes) - 1):
        works.append(CALLS[name](kernels, num_tokens, "cuda", torch.bfloat16)[1])
    title = f"{name}, {num_tokens} tokens"
    return floor.bytes_row(title, seconds_per_work(works), num_bytes, PART)


def rms_norm(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """The norm alone."""
    residual = torch.randn(num_tokens, HIDDEN, device=device)
    weight = torch.ones(HIDDEN, device=device)
    touched = residual.nbytes + residual.numel() * dtype.itemsize
    return touched, lambda: kernels.rms_norm(residual, weight, EPS, dtype)


def add_rms_norm(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """With the addition before it."""
    residual = torch.randn(num_tokens, HIDDEN, device=device)
    branch = torch.randn(num_tokens, HIDDEN, device=device).to(dtype)
    weight = torch.ones(HIDDEN, device=device)
    touched = 2 * residual.nbytes + 2 * branch.nbytes
    return touched, lambda: kernels.add_rms_norm(branch, residual, weight, EPS)


def silu_gate(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """The gate of most families."""
    return _gate(GateActivation.SILU, kernels, num_tokens, device, dtype)


def gelu_gate(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """Gemma's."""
    return _gate(GateActivation.GELU_TANH, kernels, num_tokens, device, dtype)


def _gate(
    activation: GateActivation, kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype
) -> Call:
    gate_up = torch.randn(num_tokens, 2 * INNER, device=device).to(dtype)
    return gate_up.nbytes * 3 // 2, lambda: kernels.gated_mul(gate_up, activation)


def head_norm(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """In place: Q and K are read and written."""
    qkv = torch.randn(num_tokens, ALL_HEADS * HEAD_DIM, device=device).to(dtype)
    weight = torch.ones(HEAD_DIM, device=device)
    touched = 2 * qkv.nbytes * (HEADS + KV_HEADS) // ALL_HEADS
    return touched, lambda: kernels.head_norm(qkv, weight, weight, EPS, HEADS, KV_HEADS)


def rope_write_kv(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """Into a pool of the same dtype."""
    return _write(kernels, num_tokens, device, dtype, dtype)


def rope_write_int8(kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype) -> Call:
    """Into a quantized pool."""
    return _write(kernels, num_tokens, device, dtype, torch.int8)


def _write(
    kernels: KernelSet, num_tokens: int, device: str, dtype: torch.dtype, kv_dtype: torch.dtype
) -> Call:
    qkv = torch.randn(num_tokens, ALL_HEADS * HEAD_DIM, device=device).to(dtype)
    cos_sin = torch.ones(num_tokens, 2, HEAD_DIM // 2, device=device)
    num_blocks = -(-num_tokens // BLOCK)
    slots = torch.randperm(num_blocks * BLOCK)[:num_tokens].to(device)
    positions = torch.arange(num_tokens, device=device)
    width = HEAD_DIM + (4 if kv_dtype is torch.int8 else 0)
    sides = (num_blocks, 2, KV_HEADS, BLOCK, width)
    kv_layer = torch.zeros(sides, dtype=kv_dtype, device=device)
    written = num_tokens * 2 * KV_HEADS * width * kv_dtype.itemsize
    touched = qkv.nbytes + qkv.nbytes * HEADS // ALL_HEADS + written + cos_sin.nbytes
    return touched, lambda: kernels.rope_write_kv(qkv, cos_sin, positions, slots, kv_layer)


CALLS: dict[str, Callable[[KernelSet, int, str, torch.dtype], Call]] = {
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "gated_mul, silu": silu_gate,
    "gated_mul, gelu": gelu_gate,
    "head_norm": head_norm,
    "rope_write_kv": rope_write_kv,
    "rope_write_kv to int8": rope_write_int8,
}
"""Each makes inputs for a number of tokens."""
