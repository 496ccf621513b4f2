"""Small pools and jobs for the tests of the transfer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from cluster.block_span import BlockSpan
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.local_pool import LocalPool
from kvtransfer.read_job import ReadJob, ReadResult
from kvtransfer.verification import digest_bytes

SHAPE = (2, 2, 3, 4, 8)  # [num_layers, 2, num_kv_heads, block_size, head_dim]

LIMIT_S = 60.0
"""For what is to come; generous, since machines are busy."""


def small_pool(num_blocks: int, *, seed: int | None = None) -> LocalPool:
    """Random with a seed, zero without; generations count from 100."""
    bits = torch.zeros((num_blocks, *SHAPE), dtype=torch.int16)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        bits = torch.randint(-(2**15), 2**15, bits.shape, dtype=torch.int16, generator=generator)
    return LocalPool(bits.view(torch.bfloat16), torch.arange(num_blocks) + 100)


def announced(
    source: LocalPool,
    remote: Sequence[int],
    local: Sequence[int],
    *,
    request_id: str = "r",
    first_index: int = 0,
) -> ReadJob:
    """A truthful announcement of blocks of `source`, as they are now; its incarnation is "p"."""
    return ReadJob(
        request_id=request_id,
        incarnation="p",
        span=BlockSpan(
            first_index,
            list(remote),
            source.generations[list(remote)].tolist(),
            digest_bytes(block_digest, source.blocks, remote),
        ),
        local_block_ids=list(local),
    )


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal as bits: random bfloat16 has NaNs, which equal nothing."""
    return torch.equal(left.contiguous().view(torch.int16), right.contiguous().view(torch.int16))


def wait_until(condition: Callable[[], bool], what: str, *, limit_s: float = LIMIT_S) -> None:
    """Looks until the condition holds; fails the test when it never does."""
    limit = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit, f"never happened within {limit_s} s: {what}"
        time.sleep(0.0005)


def collect(reader: BlockReader, num_results: int, *, limit_s: float = LIMIT_S) -> list[ReadResult]:
    """The next results of a reader."""
    results: list[ReadResult] = []

    def arrived() -> bool:
        results.extend(reader.poll())
        return len(results) >= num_results

    wait_until(arrived, f"{num_results} results", limit_s=limit_s)
    return results
