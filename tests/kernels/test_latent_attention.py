"""Attention over latents, what is written there and what maps to it, against the references."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from kernels.cpu.team import TEAM
from kernels.dispatch.kernel_sets import REFERENCE
from kernels.latent import LatentNorm
from kernels.reference.latent_attention import gather_latents
from tests.kernels.kernel_sets import (
    CPU_SETS,
    DTYPES,
    cpu_set,
    paged_queries,
    random,
    tolerance,
)

BATCHES = {
    "decodes": [(1, 1), (1, 63), (1, 64), (1, 65), (1, 150)],
    "a prompt": [(70, 70)],
    "decodes and chunks": [(1, 90), (1, 17), (5, 5), (40, 130), (16, 64)],
}
SHAPES = [(4, 32, 8, 16), (16, 64, 64, 16), (3, 40, 6, 5), (2, 512, 64, 16)]
"""(num_heads, kv_rank, rope_dim, block_size)."""


def latent_layer(
    num_blocks: int, block_size: int, row_dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """The middle layer of a pool of three: strided over blocks, as in use."""
    return random(num_blocks, 3, 1, 1, block_size, row_dim, dtype=dtype, seed=1)[:, 1]


def blocks_of(sequences: list[tuple[int, int]], block_size: int) -> int:
    return sum(-(-context // block_size) for _, context in sequences) + 1


def test_the_reference_is_attention_with_keys_and_values_expanded_per_head() -> None:
    """DeepSeek-V2's own form: k = [W_uk c | k_rope], v = W_uv c."""
    rank, rope_dim, nope_dim, value_dim, heads = 24, 8, 16, 12, 3
    layer = latent_layer(12, 4, rank + rope_dim, torch.float32)
    queries = paged_queries([(20, 45)], 12, 4)
    latents = gather_latents(layer, queries.block_tables[0], 45)
    key_up = random(heads, nope_dim, rank, dtype=torch.float32, seed=2)
    value_up = random(heads, value_dim, rank, dtype=torch.float32, seed=3)
    nope = random(20, heads, nope_dim, dtype=torch.float32, seed=4)
    rope = random(20, heads, rope_dim, dtype=torch.float32, seed=5)
    keys = torch.einsum("hnr,kr->hkn", key_up, latents[:, :rank])
    shared = latents[:, rank:].expand(heads, -1, -1)
    expected = F.scaled_dot_product_attention(
        torch.cat((nope, rope), -1).transpose(0, 1),
        torch.cat((keys, shared), -1),
        torch.einsum("hvr,kr->hkv", value_up, latents[:, :rank]),
        torch.ones(20, 45, dtype=torch.bool).tril(25),
        scale=0.07,
    ).transpose(0, 1)
    absorbed = torch.cat((torch.einsum("hnr,qhn->qhr", key_up, nope), rope), -1)
    attended = REFERENCE.latent_attention(absorbed, layer, queries, 0.07, rank)
    ours = torch.einsum("hvr,qhr->qhv", value_up, attended.view(20, heads, rank))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize(("num_heads", "rank", "rope_dim", "block_size"), SHAPES)
def test_attention_is_that_of_the_reference(
    num_heads: int,
    rank: int,
    rope_dim: int,
    block_size: int,
    name: str,
    batch: str,
    dtype: torch.dtype,
) -> None:
    sequences = BATCHES[batch]
    num_blocks = blocks_of(sequences, block_size)
    queries = paged_queries(sequences, num_blocks, block_size)
    query = random(sum(n for n, _ in sequences), num_heads, rank + rope_dim, dtype=dtype)
    layer = latent_layer(num_blocks, block_size, rank + rope_dim, dtype)
    scale = (rank + rope_dim) ** -0.5
    ours = cpu_set(name).latent_attention(query, layer, queries, scale, rank)
    expected = REFERENCE.latent_attention(query, layer, queries, scale, rank)
    assert ours.shape == (query.shape[0], num_heads * rank)
    torch.testing.assert_close(ours, expected, **tolerance(dtype))


@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_what_lies_behind_the_last_token_does_not_count(name: str) -> None:
    kernels, queries = cpu_set(name), paged_queries([(1, 5), (3, 6)], 4, 4)
    query = random(4, 2, 40, dtype=torch.float32)
    layer = latent_layer(4, 4, 40, torch.float32)
    clean = kernels.latent_attention(query, layer, queries, 0.2, 32)
    for seq, context in ((0, 5), (1, 6)):
        layer[queries.block_tables[seq, 1], :, :, context - 4 :] = float("nan")
    assert torch.equal(kernels.latent_attention(query, layer, queries, 0.2, 32), clean)


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_kernels_give_a_row_the_same_bits_in_every_batch(
    dtype: torch.dtype, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over more than one segment of 256 tokens, whoever sums them."""
    kernels = cpu_set("native")
    query, layer = random(600, 4, 40, dtype=dtype), latent_layer(40, 16, 40, dtype)
    whole = paged_queries([(600, 600)], 40, 16)
    monkeypatch.setattr(TEAM, "num_threads", 2)
    expected = kernels.latent_attention(query, layer, whole, 0.2, 32)
    monkeypatch.setattr(TEAM, "num_threads", threads)
    for first, end in ((0, 1), (599, 600), (0, 77), (300, 601), (63, 65)):
        end = min(end, 600)
        part = paged_queries([(end - first, end)], 40, 16)
        part = replace(part, block_tables=whole.block_tables)
        ours = kernels.latent_attention(query[first:end], layer, part, 0.2, 32)
        assert torch.equal(ours, expected[first:end])


@pytest.mark.parametrize("kv_dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_a_quantized_pool_is_near_to_a_plain_one(name: str, kv_dtype: torch.dtype) -> None:
    """Within the rounding of a row: 1 / 127 of its largest value, or 1 / 16 of each value."""
    kernels, queries = cpu_set(name), paged_queries([(12, 12)], 4, 4)
    layers = [torch.zeros(4, 1, 1, 4, 40), torch.zeros(4, 1, 1, 4, 44).to(kv_dtype)]
    slots = queries.block_tables[0].repeat_interleave(4).long() * 4 + torch.arange(4).repeat(3)
    outputs = []
    for layer in layers:
        query = random(12, 2, 40, dtype=torch.float32) / 4
        latent = random(12, 40, dtype=torch.float32, seed=3)
        norm = LatentNorm(torch.ones(32), 1e-6)
        turn = torch.stack((torch.ones(12, 4), torch.zeros(12, 4)), dim=1)
        kernels.write_latent(query, latent, norm, turn, torch.arange(12), slots, layer)
        outputs.append(kernels.latent_attention(query, layer, queries, 0.2, 32))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0.0, atol=0.1)
    assert not torch.equal(outputs[1], outputs[0])


def test_torch_takes_a_long_chunk_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.cpu.latent_attention.MAX_SCORES", 500)
    queries = paged_queries([(40, 60)], 16, 4)
    query = random(40, 2, 40, dtype=torch.float32)
    layer = latent_layer(16, 4, 40, torch.float32)
    ours = cpu_set("torch").latent_attention(query, layer, queries, 0.2, 32)
    expected = REFERENCE.latent_attention(query, layer, queries, 0.2, 32)
    torch.testing.assert_close(ours, expected, **tolerance(torch.float32))


def test_a_pool_of_keys_and_values_is_refused() -> None:
    layer = random(4, 3, 2, 1, 4, 40, dtype=torch.float32)[:, 1]
    queries = paged_queries([(1, 5)], 4, 4)
    with pytest.raises(ValueError, match="not a layer of a pool of latents"):
        REFERENCE.latent_attention(random(1, 2, 40, dtype=torch.float32), layer, queries, 0.2, 32)


def test_more_values_than_a_row_has_are_refused() -> None:
    layer, queries = latent_layer(4, 4, 40, torch.float32), paged_queries([(1, 5)], 4, 4)
    with pytest.raises(ValueError, match="value_dim is 41; needed: 1 to 40"):
        REFERENCE.latent_attention(random(1, 2, 40, dtype=torch.float32), layer, queries, 0.2, 41)


def written(
    name: str, num_heads: int, rank: int, rope_dim: int, dtype: torch.dtype, rows: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    """The pool's layer and the queries after `write_latent` of some of 30 tokens."""
    row_dim = rank + rope_dim
    query = random(30, num_heads, row_dim, dtype=dtype)[rows].clone()
    latent = random(30, row_dim + 6, dtype=dtype, seed=3)[rows, 6:]  # a slice of wider rows
    norm = LatentNorm(random(rank, dtype=torch.float32, seed=4), 1e-6)
    angles = random(64, rope_dim // 2, dtype=torch.float32, seed=5)
    cos_sin = torch.stack((angles.cos(), angles.sin()), dim=1)
    positions = torch.randperm(64, generator=torch.Generator().manual_seed(6))[:30][rows]
    slots = torch.randperm(9 * 4, generator=torch.Generator().manual_seed(7))[:30][rows]
    layer = latent_layer(9, 4, row_dim, dtype).clone()
    cpu_set(name).write_latent(query, latent, norm, cos_sin, positions, slots, layer)
    return layer, query


def test_the_reference_norms_the_latent_and_rotates_key_and_queries() -> None:
    layer, query = written("reference", 2, 32, 4, torch.float32, slice(7, 8))
    latent = random(30, 42, dtype=torch.float32, seed=3)[7, 6:]
    weight = random(32, dtype=torch.float32, seed=4)
    position = int(torch.randperm(64, generator=torch.Generator().manual_seed(6))[7])
    slot = int(torch.randperm(36, generator=torch.Generator().manual_seed(7))[7])
    turn = torch.polar(torch.ones(2), random(64, 2, dtype=torch.float32, seed=5)[position])

    def rotated(pair: torch.Tensor) -> torch.Tensor:
        turned = torch.complex(pair[:2], pair[2:]) * turn
        return torch.cat((turned.real, turned.imag))

    row = layer[slot // 4, 0, 0, slot % 4]
    torch.testing.assert_close(row[:32], F.rms_norm(latent[:32], (32,), weight, 1e-6))
    torch.testing.assert_close(row[32:], rotated(latent[32:]))
    before = random(30, 2, 36, dtype=torch.float32)[7]
    assert torch.equal(query[0, :, :32], before[:, :32])
    torch.testing.assert_close(query[0, 1, 32:], rotated(before[1, 32:]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize(("num_heads", "rank", "rope_dim"), [(4, 32, 8), (3, 40, 6), (1, 512, 64)])
def test_what_is_written_is_what_the_reference_writes(
    num_heads: int, rank: int, rope_dim: int, name: str, dtype: torch.dtype
) -> None:
    ours = written(name, num_heads, rank, rope_dim, dtype, slice(0, 30))
    expected = written("reference", num_heads, rank, rope_dim, dtype, slice(0, 30))
    for found, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(found, wanted, **tolerance(dtype))


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_kernels_write_a_token_alike_in_every_batch(dtype: torch.dtype) -> None:
    _, whole = written("native", 3, 40, 6, dtype, slice(0, 30))
    for rows in (slice(0, 1), slice(29, 30), slice(3, 17)):
        _, part = written("native", 3, 40, 6, dtype, rows)
        assert torch.equal(part, whole[rows])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CPU_SETS)
@pytest.mark.parametrize(("inner", "outer"), [(16, 32), (24, 40), (7, 5)])
def test_every_head_has_a_matrix_of_its_own(
    inner: int, outer: int, name: str, dtype: torch.dtype
) -> None:
    """Slices of wider rows, in and out, whose neighbours stay as they are."""
    weight = random(3, outer, inner, dtype=dtype) / 4
    x = random(13, 3, inner + 6, dtype=dtype, seed=1)
    out = torch.full((13, 3, outer + 4), 7.0, dtype=dtype)
    cpu_set(name).pack_heads(weight)(x[..., :inner], out[..., 2:-2])
    expected = torch.einsum("nhi,hoi->nho", x[..., :inner].float(), weight.float())
    torch.testing.assert_close(out[..., 2:-2].float(), expected, **tolerance(dtype))
    assert (out[..., :2] == 7).all()
    assert (out[..., -2:] == 7).all()


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
def test_native_heads_give_a_row_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    heads = cpu_set("native").pack_heads(random(3, 40, 24, dtype=dtype))
    x = random(50, 3, 24, dtype=dtype, seed=1)
    whole = torch.empty(50, 3, 40, dtype=dtype)
    heads(x, whole)
    for rows in (slice(0, 1), slice(49, 50), slice(5, 30)):
        part = torch.empty(rows.stop - rows.start, 3, 40, dtype=dtype)
        heads(x[rows], part)
        assert torch.equal(part, whole[rows])


def test_the_tables_of_a_batch_are_checked() -> None:
    wide = paged_queries([(1, 5)], 4, 4)
    wide = replace(wide, context_lens=wide.context_lens.long())
    layer = latent_layer(4, 4, 40, torch.float32)
    with pytest.raises(ValueError, match=r"context_lens is torch.int64; needed: torch.int32"):
        REFERENCE.latent_attention(random(1, 2, 40, dtype=torch.float32), layer, wide, 0.2, 32)
