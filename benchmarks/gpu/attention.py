"""Attention on a GPU: decodes beside the copy bandwidth, chunks beside cuDNN.

Goals: decodes at 85 % of the measured copy bandwidth (only the bytes of K and V count), chunks at
90 % of the rate of torch's SDPA with its cuDNN backend on contiguous K and V.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.attention_inputs import AttentionInputs, AttentionShape, inputs
from benchmarks.gpu.timing import GpuFloor, Work, gpu_row, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.dispatch.kernel_sets import triton_set
from kernels.tape.kernel_set import KernelSet

DECODE_PART = 0.85
PREFILL_PART = 0.9
MEMORY_BYTES = 24 << 30


def decode_shapes() -> Iterator[AttentionShape]:
    """Batch, context and heads in turn around Llama 3 8B; then pools and windows."""
    for num_seqs in (1, 4, 16, 64, 256):
        for context_len in (512, 2048, 8192, 32768):
            yield AttentionShape(num_seqs=num_seqs, context_len=context_len)
    for num_kv_heads in (32, 4, 1):
        for head_dim in (64, 128):
            for num_seqs, context_len in ((1, 32768), (32, 4096), (256, 1024)):
                yield AttentionShape(
                    num_seqs=num_seqs,
                    context_len=context_len,
                    num_kv_heads=num_kv_heads,
                    head_dim=head_dim,
                )
    typical = AttentionShape(num_seqs=32, context_len=4096)
    for kv_dtype in (torch.int8, torch.float8_e4m3fn):
        yield replace(typical, kv_dtype=kv_dtype)
    yield replace(typical, window=1024)


def prefill_shapes() -> Iterator[AttentionShape]:
    """Whole prompts, and a chunk behind a prefix."""
    for head_dim, num_heads, num_kv_heads in ((64, 32, 8), (128, 32, 8), (128, 32, 32)):
        for num_seqs, length in ((16, 512), (4, 2048), (1, 8192), (1, 16384)):
            yield AttentionShape(
                num_seqs=num_seqs,
                context_len=length,
                query_len=length,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
            )


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    memory = random_bytes(MEMORY_BYTES, torch.device("cuda"))
    kernels = triton_set()
    table = [
        decode_row(kernels, shape, memory, floor)
        for shape in decode_shapes()
        if shape.pool_bytes <= MEMORY_BYTES
    ]
    for shape in prefill_shapes():
        table += prefill_rows(kernels, shape, memory, floor)
    return table


def random_bytes(num_bytes: int, device: torch.device) -> torch.Tensor:
    """uint8 that is finite as int8, as float8, as bfloat16 (0.5 to 1) and as float32."""
    memory = torch.randint(0, 127, (num_bytes // 2, 2), dtype=torch.uint8, device=device)
    memory[:, 1].fill_(0x3F)  # the high byte of a number below one
    return memory.flatten()


def decode_row(
    kernels: KernelSet, shape: AttentionShape, memory: torch.Tensor, floor: GpuFloor
) -> Row:
    """One decode step of one layer."""
    copies = min(num_copies(shape.kv_bytes), memory.numel() // shape.pool_bytes)
    works = [attend(kernels, shape, given) for given in inputs(shape, copies, memory)]
    name = f"decode, {shape}"
    return floor.bytes_row(name, seconds_per_work(works), shape.kv_bytes, DECODE_PART)


def attend(kernels: KernelSet, shape: AttentionShape, given: AttentionInputs) -> Work:
    """A call of the kernel."""
    scale = shape.head_dim**-0.5
    return lambda: kernels.paged_attention(
        given.query, given.kv_layer, given.queries, scale, shape.window
    )


def prefill_rows(
    kernels: KernelSet, shape: AttentionShape, memory: torch.Tensor, floor: GpuFloor
) -> list[Row]:
    """cuDNN's row, and ours with the goal that follows."""
    theirs = seconds_per_work([sdpa(shape)])
    goal_s = statistics.median(theirs) / PREFILL_PART
    ours = seconds_per_work([attend(kernels, shape, next(inputs(shape, 1, memory)))])
    return [
        gpu_row(f"cuDNN SDPA, {shape}", theirs, shape.flops / floor.bf16_flops_per_s),
        floor.flops_row(f"prefill, {shape}", ours, shape.flops, goal_s),
    ]


def sdpa(shape: AttentionShape) -> Work:
    """Contiguous K and V, in cuDNN's favour."""

    def heads(count: int) -> torch.Tensor:
        size = (shape.num_seqs, count, shape.context_len, shape.head_dim)
        return torch.randn(size, device="cuda").bfloat16()

    query, key, value = heads(shape.num_heads), heads(shape.num_kv_heads), heads(shape.num_kv_heads)

    def work() -> object:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )

    return work
