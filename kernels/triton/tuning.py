"""Tile sizes of the attention kernels, by the shapes of a model.

Status: chosen by counting the shared memory and the registers of a Hopper processor (227 KiB,
65,536), and so that they compile for smaller ones (gpu.py); NOT YET MEASURED. To measure candidates
on a GPU, and see what to put here: `python -m benchmarks.gpu.tune`. A row's arithmetic depends on
these numbers; therefore they depend on the model, the pool's dtype and the GPU only, never on the
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernels.door import require
from kernels.triton.gpu import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeTiles:
    """How decode attention cuts a context, and what one program holds.

    A split leaves a float32 row per query head, written and read once: beside the K and V that a
    group of heads shares, 2 * group / min_split of the traffic in bfloat16.
    """

    chunk: int
    """Tokens per iteration, over several blocks."""
    min_split: int
    """Tokens; whole chunks."""
    max_splits: int
    """Splits grow beyond `min_split` where a context would have more of them."""
    num_warps: int
    num_stages: int
    programs_per_processor: int
    """Resident at once; what shared memory and registers allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillTiles:
    """One program of prefill attention."""

    rows: int
    """Query rows: the tokens of a chunk times the heads that share a KV head."""
    chunk: int
    num_warps: int
    num_stages: int


_NORM_VALUES = 1024
"""Of a program with four warps."""


def _decode(chunk: int, programs: int) -> DecodeTiles:
    return DecodeTiles(
        chunk=chunk,
        min_split=256,
        max_splits=32,
        num_warps=4,
        num_stages=3,
        programs_per_processor=programs,
    )


# (head_dim up to, bytes per value of the pool). K and V of a chunk are 16 or 32 KiB and two chunks
# are under way per program: 71 KiB of shared memory, three programs to a processor. Little's law
# asks for about 20 KiB under way per processor (3.35 TB/s, 0.7 us, 132 processors). Pools of one
# byte need registers for their conversion, hence fewer tokens and programs. How many programs are
# resident is asked of the compiler: tests/kernels/triton/test_compiles.py, `make test-more`.
_DECODE: dict[tuple[int, int], DecodeTiles] = {
    (64, 1): _decode(64, programs=4),
    (64, 2): _decode(128, programs=3),
    (64, 4): _decode(64, programs=3),
    (128, 1): _decode(64, programs=2),
    (128, 2): _decode(64, programs=3),
    (128, 4): _decode(32, programs=3),
    (256, 1): _decode(32, programs=3),
    (256, 2): _decode(32, programs=3),
    (256, 4): _decode(16, programs=2),
}
_WIDE_GROUP = 16
"""Query heads per KV head from which the accumulator needs twice the warps."""
_FEW_KV_HEADS = 4
"""KV heads up to which a single sequence needs more splits to fill the device."""

# head_dim up to. Two warp groups of 64 rows each. With 64 tokens per chunk a thread of the 64 wide
# heads needs fewer than 128 registers, so that a second program's softmax runs beside the first
# one's products; three stages, because two would wait for what they have just asked for.
_PREFILL: dict[int, PrefillTiles] = {
    64: PrefillTiles(rows=128, chunk=64, num_warps=8, num_stages=3),
    128: PrefillTiles(rows=128, chunk=64, num_warps=8, num_stages=3),
    256: PrefillTiles(rows=128, chunk=32, num_warps=8, num_stages=3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsShape:
    """What attention is of, as far as tiles go by it."""

    head_dim: int
    group: int
    """Query heads that share a KV head."""
    num_kv_heads: int
    query_bytes: int
    """Of a value of queries, and of what is multiplied."""
    value_bytes: int
    """Of the pool's."""


_FEWER_STAGES = 2
_SPARE_BYTES = 1024
"""Beside the tiles a program has up to 256 bytes more, by the compiler's word."""
_VERIFY_ROWS = 64
"""Query rows of a program that verifies drafts: one warp group of a Hopper's products."""
_SHORT_ROWS = 64
"""Rows of a tile when no chunk of the batch fills a larger one: one warp group."""

# Query heads of a program -> tiles of latent attention, whose rows of 576 are 1.1 KiB: 36 KiB a
# chunk, twice, beside 18 to 72 KiB of queries. A split leaves 2 KiB per head, so that splits of
# many heads are long.
_LATENT: dict[int, DecodeTiles] = {
    16: _decode(32, programs=2),
    32: replace(_decode(32, programs=1), num_warps=8),
    64: replace(_decode(32, programs=1), num_warps=8, min_split=512, max_splits=16),
}
_LATENT_PREFILL = PrefillTiles(rows=64, chunk=32, num_warps=8, num_stages=3)


def decode_tiles(head_dim: int, group: int, num_kv_heads: int, value_bytes: int) -> DecodeTiles:
    """For a model and a pool. Raises ValueError for heads over 256."""
    tiles = _DECODE[_head_class(head_dim), value_bytes]
    if group > _WIDE_GROUP:
        programs = 1 if value_bytes == 1 and head_dim > 64 else 2
        tiles = replace(tiles, num_warps=8, programs_per_processor=programs)
    return replace(tiles, max_splits=64) if num_kv_heads <= _FEW_KV_HEADS else tiles


def verify_tiles(heads: HeadsShape, num_queries: int, gpu: Gpu) -> tuple[int, DecodeTiles] | None:
    """(query tokens per program, tiles) where each sequence has `num_queries`. Contexts are cut as
    those of decodes are, in chunks of as many tokens: what gives way to a small shared memory are
    copies under way, then tokens. None: not even one token's rows fit."""
    tokens = min(num_queries, max(1, _VERIFY_ROWS // heads.group))
    while tokens:
        rows = heads.group * tokens
        tiles = decode_tiles(heads.head_dim, rows, heads.num_kv_heads, heads.value_bytes)
        for stages in (tiles.num_stages, _FEWER_STAGES):
            fitting = replace(tiles, num_stages=stages)
            if _verify_bytes(heads, rows, fitting) <= gpu.shared_bytes:
                return tokens, fitting
        tokens //= 2
    return None


def _verify_bytes(heads: HeadsShape, rows: int, tiles: DecodeTiles) -> int:
    """Of shared memory, as Triton 3.6 lays a program out for 8.9: K and V of each chunk under way,
    the scales of one-byte values, which become float32 by way of it, the queries, and the weights
    of one chunk."""
    width, scale_bytes = max(16, _power_of_2(heads.head_dim)), 4 if heads.value_bytes == 1 else 0
    chunk_bytes = 2 * tiles.chunk * (width * heads.value_bytes + scale_bytes)
    row_bytes = (width + tiles.chunk) * heads.query_bytes
    held = (tiles.num_stages - 1) * chunk_bytes + max(16, _power_of_2(rows)) * row_bytes
    if heads.value_bytes == 1 and heads.query_bytes == 4:
        held += tiles.chunk * width * heads.query_bytes
    return held + _SPARE_BYTES


def prefill_tiles(
    head_dim: int, group: int, max_query_len: int, value_bytes: int, gpu: Gpu
) -> PrefillTiles:
    """For a batch whose longest chunk has `max_query_len` tokens. The rows of a tile do not change
    a row's arithmetic, the tokens of a chunk would."""
    tiles = _PREFILL[_head_class(head_dim)]
    if value_bytes == 4:
        tiles = replace(tiles, rows=_SHORT_ROWS, chunk=32, num_stages=2)
    if not gpu.is_roomy and head_dim > 128:
        tiles = replace(tiles, rows=_SHORT_ROWS, num_stages=2)
    if max_query_len * group <= _SHORT_ROWS:
        tiles = replace(tiles, rows=_SHORT_ROWS, num_warps=4)
    return replace(tiles, rows=max(tiles.rows, _power_of_2(group)))


def decode_latent_tiles(num_heads: int, value_bytes: int, gpu: Gpu) -> tuple[int, DecodeTiles]:
    """(query heads per program, tiles) of latent attention."""
    most = 64 if gpu.is_roomy and not gpu.has_tensor_memory else 32
    rows = min(most, max(16, _power_of_2(num_heads)))
    tiles = _LATENT[rows]
    if value_bytes == 1:  # their conversion needs registers
        tiles = replace(tiles, num_warps=8, programs_per_processor=1)
    if not gpu.is_roomy:
        tiles = replace(tiles, chunk=16, num_stages=2, num_warps=8, programs_per_processor=1)
    return rows, tiles if value_bytes <= 2 else replace(tiles, chunk=16, num_stages=2)


def prefill_latent_tiles(value_bytes: int, gpu: Gpu) -> PrefillTiles:
    """Of latent attention."""
    if value_bytes <= 2 and not gpu.is_roomy:
        return replace(_LATENT_PREFILL, rows=32, chunk=16, num_stages=2)
    if value_bytes <= 2:
        return replace(_LATENT_PREFILL, num_stages=2) if gpu.has_tensor_memory else _LATENT_PREFILL
    return replace(_LATENT_PREFILL, rows=16, chunk=16, num_stages=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormTile:
    """Rows of one program, as wide as memory is contiguous."""

    rows: int
    width: int
    num_warps: int


def norm_tile(width: int) -> NormTile:
    """Eight values a thread, sixteen where a row has 4096 or more: enough loads under way to wait
    for memory once, and several rows together where one would not fill four warps."""
    rows = max(1, _NORM_VALUES // width)
    return NormTile(rows=rows, width=width, num_warps=min(16, max(4, rows * width // 512)))


def _head_class(head_dim: int) -> int:
    classes = [width for width in _PREFILL if head_dim <= width]
    require(bool(classes), f"heads of {head_dim}; the Triton attention takes up to 256")
    return min(classes)


def _power_of_2(count: int) -> int:
    return 1 << (count - 1).bit_length()
