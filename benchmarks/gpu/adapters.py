"""Adapters beside a layer's QKV product on a GPU: the bytes of their matrices, each read once."""

from __future__ import annotations

import torch

from benchmarks.gpu.timing import GpuFloor, Work, gpu_row, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.adapters import AdapterPart, AdapterSite
from kernels.triton.add_adapters import add_adapters

HIDDEN, WIDTHS, LORA_RANK = 4096, (4096, 1024, 1024), 16
"""Llama 3 8B, and a rank that most adapters have."""
STEPS = {"1 decode": (1, 1), "16 decodes": (16, 1), "64 decodes": (64, 1), "a prompt": (1, 2048)}
"""Sequences, each with an adapter of its own, and the rows that each has."""


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    return [_row(name, *step, floor) for name, step in STEPS.items()]


def _row(name: str, num_seqs: int, rows_each: int, floor: GpuFloor) -> Row:
    device = torch.device("cuda")
    num_bytes, first = work_of(num_seqs, rows_each, device, torch.bfloat16)
    works = [first]
    for _ in range(num_copies(num_bytes) - 1):
        works.append(work_of(num_seqs, rows_each, device, torch.bfloat16)[1])
    title = f"add_adapters, {name}"
    return gpu_row(title, seconds_per_work(works), num_bytes / floor.copy_bytes_per_s)


def work_of(
    num_seqs: int, rows_each: int, device: torch.device, dtype: torch.dtype
) -> tuple[int, Work]:
    """Bytes that have to be touched, and one product's additions on inputs of their own."""
    site = site_of(num_seqs, device, dtype)
    slots = torch.arange(1, num_seqs + 1, dtype=torch.int32).repeat_interleave(rows_each)
    slots = slots.to(device)  # [num_seqs * rows_each]
    x = torch.randn(len(slots), HIDDEN, device=device).to(dtype)
    out = torch.randn(len(slots), sum(WIDTHS), device=device).to(dtype)
    touched = site.num_bytes + x.nbytes * len(WIDTHS) + 2 * out.nbytes
    return touched, lambda: add_adapters(x, out, slots, site, rows_each)


def site_of(num_adapters: int, device: torch.device, dtype: torch.dtype) -> AdapterSite:
    """Adapters of one rank, side by side in the stacks."""
    num_ranks = num_adapters * LORA_RANK
    starts = torch.arange(-1, num_adapters, dtype=torch.int32).clamp(min=0) * LORA_RANK
    lora_ranks = torch.full((num_adapters + 1,), LORA_RANK, dtype=torch.int32)
    lora_ranks[0] = 0
    parts, column = list[AdapterPart](), 0
    for width in WIDTHS:
        parts.append(
            AdapterPart(
                down=torch.randn(num_ranks, HIDDEN, device=device).to(dtype),
                up=torch.randn(num_ranks, width, device=device).to(dtype),
                lora_ranks=lora_ranks.to(device),
                first_column=column,
            )
        )
        column += width
    return AdapterSite(parts=tuple(parts), starts=starts.to(device), max_lora_rank=LORA_RANK)
