"""Measures candidate tiles of the attention kernels and prints the tables for a person to commit.

    python -m benchmarks.gpu.tune [--head-dims 64 128 256]

Each table's entries in kernels/triton/tuning.py stand for classes of models; each class is measured
on a few batches, and the candidate with the least sum of slowdowns (time over the best time of that
batch) wins. Needs a CUDA device; says so without one.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import torch
from triton.runtime.errors import OutOfResources

from benchmarks.gpu.attention import MEMORY_BYTES, random_bytes
from benchmarks.gpu.attention_inputs import AttentionInputs, AttentionShape, inputs
from benchmarks.gpu.timing import num_copies, seconds_per_work
from kernels.triton.decode_attention import decode_attention
from kernels.triton.prefill_attention import prefill_attention
from kernels.triton.tuning import DecodeTiles, PrefillTiles

Tiles = TypeVar("Tiles", DecodeTiles, PrefillTiles)
Launch = Callable[[AttentionShape, AttentionInputs, torch.Tensor, Tiles], None]
REPEATS = 15
DECODE_BATCHES = ((1, 8192), (16, 2048), (128, 2048), (32, 8192))
PREFILL_BATCHES = ((4, 2048), (1, 8192))
HEAD_DIMS = (64, 128, 256)
POOLS = (torch.bfloat16, torch.int8)


def decode_candidates(value_bytes: int) -> Iterator[DecodeTiles]:
    """Every combination; what does not fit in shared memory is passed over when it is launched."""
    chunks, programs = (32, 64, 128), (2, 3, 4) if value_bytes > 1 else (3, 4, 6)
    for chunk, num_warps, num_stages, programs_each in itertools.product(
        chunks, (4, 8), (3, 4), programs
    ):
        yield DecodeTiles(
            chunk=chunk,
            min_split=256,
            max_splits=32,
            num_warps=num_warps,
            num_stages=num_stages,
            programs_per_processor=programs_each,
        )


def prefill_candidates() -> Iterator[PrefillTiles]:
    """Likewise."""
    for rows, chunk, num_warps, num_stages in itertools.product(
        (64, 128), (32, 64, 128), (4, 8), (2, 3, 4)
    ):
        yield PrefillTiles(rows=rows, chunk=chunk, num_warps=num_warps, num_stages=num_stages)


def launch_decode(
    shape: AttentionShape, given: AttentionInputs, out: torch.Tensor, tiles: DecodeTiles
) -> None:
    """One call."""
    scale = shape.head_dim**-0.5
    decode_attention(given.query, given.kv_layer, given.queries, scale, out, None, tiles)


def launch_prefill(
    shape: AttentionShape, given: AttentionInputs, out: torch.Tensor, tiles: PrefillTiles
) -> None:
    """One call."""
    scale = shape.head_dim**-0.5
    prefill_attention(given.query, given.kv_layer, given.queries, scale, out, None, tiles)


def seconds(
    shape: AttentionShape, memory: torch.Tensor, launch: Launch[Tiles], tiles: Tiles
) -> float | None:
    """The median; None when the device cannot hold such a program."""
    wanted = num_copies(shape.kv_bytes) if shape.query_len == 1 else 1
    copies = min(wanted, memory.numel() // shape.pool_bytes)
    layers = list(inputs(shape, copies, memory))
    out = torch.empty_like(layers[0].query).flatten(1)
    works = [partial(launch, shape, given, out, tiles) for given in layers]
    try:
        return statistics.median(seconds_per_work(works, REPEATS))
    except OutOfResources:
        return None


def best(
    shapes: Sequence[AttentionShape],
    memory: torch.Tensor,
    launch: Launch[Tiles],
    candidates: Sequence[Tiles],
) -> tuple[Tiles, list[float]]:
    """The candidate that loses least against the best of every shape, and its seconds."""
    times = {
        tiles: [seconds(shape, memory, launch, tiles) for shape in shapes] for tiles in candidates
    }
    whole = {tiles: [t for t in row if t is not None] for tiles, row in times.items()}
    whole = {tiles: row for tiles, row in whole.items() if len(row) == len(shapes)}
    least = [min(row[i] for row in whole.values()) for i in range(len(shapes))]

    def slowdown(tiles: Tiles) -> float:
        return sum(taken / best_s for taken, best_s in zip(whole[tiles], least, strict=True))

    winner = min(whole, key=slowdown)
    return winner, whole[winner]


def shapes_of(
    batches: Sequence[tuple[int, int]], head_dim: int, kv_dtype: torch.dtype, is_prefill: bool
) -> list[AttentionShape]:
    """Eight KV heads, groups of four: Llama 3 8B's."""
    return [
        AttentionShape(
            num_seqs=num_seqs,
            context_len=context_len,
            query_len=context_len if is_prefill else 1,
            head_dim=head_dim,
            kv_dtype=kv_dtype,
        )
        for num_seqs, context_len in batches
    ]


def main() -> int:
    """Prints a line per entry: key, tiles, microseconds of each batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--head-dims", nargs="*", type=int, default=HEAD_DIMS)
    head_dims = parser.parse_args().head_dims
    if not torch.cuda.is_available():
        print("nothing is tuned: no CUDA device is at hand")
        return 0
    memory = random_bytes(MEMORY_BYTES, torch.device("cuda"))
    print(f"# {torch.cuda.get_device_name()}, decodes (sequences, context): {DECODE_BATCHES}")
    for head_dim, kv_dtype in itertools.product(head_dims, POOLS):
        shapes = shapes_of(DECODE_BATCHES, head_dim, kv_dtype, is_prefill=False)
        decodes = list(decode_candidates(kv_dtype.itemsize))
        print_entry((head_dim, kv_dtype.itemsize), *best(shapes, memory, launch_decode, decodes))
    print(f"# chunks: {PREFILL_BATCHES}")
    for head_dim in head_dims:
        shapes = shapes_of(PREFILL_BATCHES, head_dim, torch.bfloat16, is_prefill=True)
        chunks = list(prefill_candidates())
        print_entry(head_dim, *best(shapes, memory, launch_prefill, chunks))
    return 0


def print_entry(key: object, tiles: object, taken_s: Sequence[float]) -> None:
    """As it stands in the table, with its measurement as a comment."""
    print(f"    {key}: {tiles},  # {' '.join(f'{t * 1e6:.1f}' for t in taken_s)} us", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
