"""rope_write_kv against the reference, the pool included."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.kv_rows import read_blocks, row_scales, row_values, write_rows
from tests.kernels.kernel_sets import (
    DTYPES,
    QUANTIZED,
    cpu_set,
    quantized_pool_layer,
    random,
    random_pool_layer,
    tolerance,
)
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

NUM_HEADS, NUM_KV_HEADS, BLOCK_SIZE, NUM_BLOCKS = 6, 2, 4, 9


def rotation_table(max_context: int, head_dim: int) -> torch.Tensor:
    angles = random(max_context, head_dim // 2, dtype=torch.float32, seed=4)
    return torch.stack((angles.cos(), angles.sin()), dim=1)


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [16, 24, 64])
@pytest.mark.parametrize("num_tokens", [0, 1, 20])
def test_native_kernels_rotate_and_write_what_the_reference_does(
    num_tokens: int, head_dim: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(5)
    qkv = random(num_tokens, (NUM_HEADS + 2 * NUM_KV_HEADS) * head_dim, dtype=dtype)
    positions = torch.randint(0, 50, (num_tokens,), generator=generator)
    slots = torch.randperm(NUM_BLOCKS * BLOCK_SIZE, generator=generator)[:num_tokens]
    ours = random_pool_layer(NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, head_dim, dtype)
    theirs, table = ours.clone(), rotation_table(50, head_dim)
    expected = REFERENCE.rope_write_kv(qkv, table, positions, slots, theirs)
    query = cpu_set("native").rope_write_kv(qkv.clone(), table, positions, slots, ours)
    torch.testing.assert_close(query, expected, **tolerance(dtype))
    torch.testing.assert_close(ours, theirs, **tolerance(dtype))


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("pool", QUANTIZED)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [16, 24, 64, 66])
def test_native_kernels_quantize_rows_as_the_reference_does(
    head_dim: int, dtype: torch.dtype, pool: torch.dtype
) -> None:
    qkv = random(20, (NUM_HEADS + 2 * NUM_KV_HEADS) * head_dim, dtype=dtype)
    qkv[3] = 0
    positions, slots = torch.arange(20), torch.randperm(NUM_BLOCKS * BLOCK_SIZE)[:20]
    ours = quantized_pool_layer(NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, head_dim, pool)
    theirs, table = ours.clone(), rotation_table(50, head_dim)
    expected = REFERENCE.rope_write_kv(qkv, table, positions, slots, theirs)
    query = cpu_set("native").rope_write_kv(qkv.clone(), table, positions, slots, ours)
    torch.testing.assert_close(query, expected, **tolerance(dtype))
    assert torch.equal(row_values(ours)[:, 1].float(), row_values(theirs)[:, 1].float())
    torch.testing.assert_close(row_scales(ours), row_scales(theirs), rtol=1e-6, atol=0)
    # a key on the edge between two codes may fall to either side: at most 32 apart in fp8
    step = float(row_scales(theirs).max()) * (1 if pool is torch.int8 else 32)
    blocks = torch.arange(NUM_BLOCKS)
    apart = (read_blocks(ours, blocks) - read_blocks(theirs, blocks)).abs()
    assert float(apart.max()) <= step * 1.001
    assert int((apart > step / 100).sum()) < 5


@pytest.mark.parametrize("pool", QUANTIZED)
def test_a_quantized_row_comes_back_within_half_a_step(pool: torch.dtype) -> None:
    rows = 5 * random(BLOCK_SIZE, NUM_KV_HEADS, 64, dtype=torch.float32)
    layer = quantized_pool_layer(2, NUM_KV_HEADS, BLOCK_SIZE, 64, pool)
    write_rows(layer, 1, torch.arange(BLOCK_SIZE), rows)
    back = read_blocks(layer, torch.tensor([0]))[0, 1].transpose(0, 1)
    largest = rows.abs().amax(dim=-1, keepdim=True)
    # int8: half of largest / 127; fp8: 3 bits of fraction, half of the last one
    bound = largest / 254 if pool is torch.int8 else rows.abs() / 16 + largest / 448 / 512
    assert bool(((back - rows).abs() <= bound * 1.001).all())


@pytest.mark.usefixtures("every_level")
def test_slots_that_are_not_named_keep_their_values() -> None:
    qkv = random(1, 10 * 16, dtype=torch.float32)
    layer = random_pool_layer(NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, 16, torch.float32)
    before = layer.clone()
    slot, table = torch.tensor([14]), rotation_table(50, 16)
    cpu_set("native").rope_write_kv(qkv, table, torch.tensor([0]), slot, layer)
    changed = (layer != before).any(dim=-1).nonzero()
    assert {(block, offset) for block, _, _, offset in changed.tolist()} == {(3, 2)}
    assert len(changed) == 2 * NUM_KV_HEADS


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("head_dim", [16, 24])
@pytest.mark.parametrize("num_tokens", [0, 3])
def test_triton_rotates_and_writes_what_the_reference_does(
    num_tokens: int, head_dim: int, place: Place
) -> None:
    device, dtype = place
    qkv = random(num_tokens, (NUM_HEADS + 2 * NUM_KV_HEADS) * head_dim, dtype=dtype).to(device)
    positions = torch.tensor([4, 0, 49], device=device)[:num_tokens]
    slots = torch.tensor([7, 30, 8], device=device)[:num_tokens]
    ours = random_pool_layer(NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, head_dim, dtype).to(device)
    ours = torch.stack((ours, ours), dim=1)[:, 1]  # strided over blocks on this device, too
    theirs, table = ours.clone(), rotation_table(50, head_dim).to(device)
    expected = REFERENCE.rope_write_kv(qkv, table, positions, slots, theirs)
    query = triton_kernels().rope_write_kv(qkv.clone(), table, positions, slots, ours)
    torch.testing.assert_close(query, expected, **tolerance(dtype))
    torch.testing.assert_close(ours, theirs, **tolerance(dtype))
