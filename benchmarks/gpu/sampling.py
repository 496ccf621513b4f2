"""Sampling, masks, and whole KV blocks, on a GPU, beside the bytes that they touch once.

A sampler has to see its logits: one reading is the floor. It reads them two to four times, from
the L2 cache where they fit; there is no goal but to stay far below a decode step.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.gpu.timing import GpuFloor, Work, gpu_row, num_copies, seconds_per_work
from benchmarks.report import Row
from kernels.reference.sample import Draws, min_gap
from kernels.token_mask import num_words
from kernels.triton.block_copy import block_copy
from kernels.triton.block_digest import block_digest
from kernels.triton.mask_logits import ban
from kernels.triton.sample import sample

VOCAB_SIZE = 128_256
ROWS = (1, 16, 64, 256)
BLOCK_SHAPE = (32, 2, 8, 16, 128)
"""Llama 3 8B: 2 MiB a block in bfloat16."""
NUM_BLOCKS = 2048


def rows(floor: GpuFloor) -> list[Row]:
    """The table of this module."""
    table = []
    for num_rows in ROWS:
        logits = torch.randn(num_rows, VOCAB_SIZE, device="cuda") * 3
        for name, draws in draws_of_kinds(num_rows, torch.device("cuda")).items():
            seconds = seconds_per_work([work_of(logits, draws)])
            least = logits.nbytes / floor.copy_bytes_per_s
            table.append(gpu_row(f"sample, {name}, {num_rows} rows", seconds, least))
        num_bytes, work = masked(logits)
        seconds = seconds_per_work([work])
        least = num_bytes / floor.copy_bytes_per_s
        table.append(gpu_row(f"mask_logits, {num_rows} rows", seconds, least))
    return [*table, *block_rows(floor)]


def work_of(logits: torch.Tensor, draws: Draws) -> Work:
    """One batch."""
    return lambda: sample(logits, draws)


def masked(logits: torch.Tensor) -> tuple[int, Work]:
    """Bytes that are touched, and masks on the device by which no token of any row may come."""
    num_rows, vocab_size = logits.shape
    rows = torch.arange(num_rows, device=logits.device)
    words = torch.zeros(num_rows, num_words(vocab_size), dtype=torch.int32, device=logits.device)
    return words.nbytes + logits.nbytes, lambda: ban(logits, rows, words)


def draws_of_kinds(num_rows: int, device: torch.device) -> dict[str, Draws]:
    """What requests ask for."""

    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((num_rows,), value, dtype=dtype, device=device)

    plain = Draws(
        temperatures=column(1.0, torch.float32),
        top_k=column(0, torch.int32),
        top_p=column(1.0, torch.float64),
        min_gaps=column(-torch.inf, torch.float32),
        keys=torch.randint(2**63 - 1, (num_rows,), device=device),
        has_limits=False,
    )
    return {
        "greedy": replace(plain, temperatures=column(0.0, torch.float32)),
        "temperature": plain,
        "top-k 50": replace(plain, top_k=column(50, torch.int32), has_limits=True),
        "top-p 0.9": replace(plain, top_p=column(0.9, torch.float64), has_limits=True),
        "top-k 50, top-p 0.9, min-p 0.05": replace(
            plain,
            top_k=column(50, torch.int32),
            top_p=column(0.9, torch.float64),
            min_gaps=column(min_gap(0.05, 1.0), torch.float32),
            has_limits=True,
        ),
    }


def block_rows(floor: GpuFloor) -> list[Row]:
    """Goals: 90 % of the copy bandwidth."""
    pool = torch.randn(NUM_BLOCKS, *BLOCK_SHAPE, device="cuda").bfloat16()
    table = []
    for count in (1, 16, 256):
        touched = count * pool[0].nbytes
        order = torch.randperm(NUM_BLOCKS, device="cuda")
        copies = min(num_copies(touched), NUM_BLOCKS // (2 * count))
        picks = order[: 2 * count * copies].view(copies, 2, count)
        copy_works = [copied(pool, *pick) for pick in picks]
        digest_works = [digested(pool, pick[0]) for pick in picks]
        copied_s, digested_s = seconds_per_work(copy_works), seconds_per_work(digest_works)
        table.append(floor.bytes_row(f"block_copy, {count} blocks", copied_s, 2 * touched, 0.9))
        table.append(floor.bytes_row(f"block_digest, {count} blocks", digested_s, touched, 0.9))
    return table


def copied(pool: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> Work:
    """Within the pool."""
    return lambda: block_copy(pool, sources, pool, targets)


def digested(pool: torch.Tensor, ids: torch.Tensor) -> Work:
    """Every slice of the blocks."""
    return lambda: block_digest(pool, ids)
