"""The Triton kernels between matrices: what the tests beside the CPU's do not cover."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.kv_rows import row_scales, row_values
from kernels.triton.gated_mul import tile_width
from tests.kernels.kernel_sets import random, random_pool_layer, tolerance
from tests.kernels.triton_places import PLACES, Place
from tests.kernels.triton_places import kernels as triton_kernels

EPS = 1e-5


@pytest.mark.parametrize("inner", [1, 100, 1024, 1536, 5120, 8960, 11008, 14336])
def test_few_lanes_of_a_gate_are_idle(inner: int) -> None:
    width = tile_width(inner)
    num_idle = -(-inner // width) * width - inner
    assert num_idle < max(256, 0.1 * inner)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("num_tokens", "num_heads", "num_kv_heads", "head_dim"), [(0, 4, 2, 16), (5, 3, 1, 24)]
)
def test_head_norm_norms_queries_and_keys_and_leaves_values(
    num_tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, place: Place
) -> None:
    device, dtype = place
    width = (num_heads + 2 * num_kv_heads) * head_dim
    ours = (random(num_tokens, width, dtype=dtype) * 5).to(device)
    query_weight, key_weight = random(2, head_dim, dtype=torch.float32, seed=3).to(device)
    theirs = ours.clone()
    for qkv, kernels in ((ours, triton_kernels()), (theirs, REFERENCE)):
        kernels.head_norm(qkv, query_weight, key_weight, EPS, num_heads, num_kv_heads)
    torch.testing.assert_close(ours, theirs, **tolerance(dtype))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("num_tokens", "hidden"), [(3, 576), (70, 40)])
def test_rows_share_a_program_and_keep_their_norms(
    num_tokens: int, hidden: int, place: Place
) -> None:
    device, dtype = place
    residual = random(num_tokens, hidden, dtype=torch.float32).to(device)
    branch = random(num_tokens, hidden, dtype=dtype, seed=2).to(device)
    weight = random(hidden, dtype=torch.float32, seed=3).to(device)
    ours, theirs = residual.clone(), residual.clone()
    normed = triton_kernels().add_rms_norm(branch, ours, weight, EPS)
    expected = REFERENCE.add_rms_norm(branch, theirs, weight, EPS)
    torch.testing.assert_close(normed, expected, **tolerance(dtype))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kv_dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("head_dim", [16, 24])
def test_a_quantized_row_is_written_with_its_scale(
    head_dim: int, kv_dtype: torch.dtype, place: Place
) -> None:
    device, dtype = place
    qkv = random(3, 10 * head_dim, dtype=dtype)
    qkv[1, -head_dim:] = 0  # a value of zeros: scale 0
    qkv = qkv.to(device)
    angles = random(50, head_dim // 2, dtype=torch.float32, seed=4)
    table = torch.stack((angles.cos(), angles.sin()), dim=1).to(device)
    positions, slots = torch.tensor([[4, 0, 49], [7, 30, 8]], device=device)
    whole = torch.zeros(9, 2, 2, 2, 4, head_dim + 4, dtype=kv_dtype, device=device)
    ours, theirs = whole[:, 1], whole.clone()[:, 1]
    expected = REFERENCE.rope_write_kv(qkv.clone(), table, positions, slots, theirs)
    query = triton_kernels().rope_write_kv(qkv, table, positions, slots, ours)
    torch.testing.assert_close(query, expected, **tolerance(dtype))
    torch.testing.assert_close(row_scales(ours), row_scales(theirs), rtol=1e-6, atol=0)
    values, others = row_values(ours).float(), row_values(theirs).float()
    if kv_dtype is not torch.int8 and device == "cpu":
        # Triton's interpreter loses the carry of a mantissa that rounds up to a power of two.
        values[(others.abs().frexp().mantissa == 0.5) & (values * 2 == others)] *= 2
    assert (values != others).float().mean() < 0.01  # the last bit of a rotation may decide
    torch.testing.assert_close(values, others, rtol=0.125, atol=1)
    assert not whole[:, 0].float().any()  # the other layer


@pytest.mark.parametrize("place", PLACES)
def test_heads_of_one_token_are_shared_by_programs(place: Place) -> None:
    device, dtype = place
    num_heads, num_kv_heads, head_dim = 40, 3, 64  # 46 heads, 32 to a program
    qkv = random(2, 46 * head_dim, dtype=dtype).to(device)
    angles = random(9, head_dim // 2, dtype=torch.float32, seed=4)
    table = torch.stack((angles.cos(), angles.sin()), dim=1).to(device)
    positions, slots = torch.tensor([[8, 3], [5, 11]], device=device)
    ours = random_pool_layer(4, num_kv_heads, 4, head_dim, dtype).to(device)
    ours = torch.stack((ours, ours), dim=1)[:, 1]
    theirs = ours.clone()
    expected = REFERENCE.rope_write_kv(qkv.clone(), table, positions, slots, theirs)
    query = triton_kernels().rope_write_kv(qkv, table, positions, slots, ours)
    assert query.shape == (2, num_heads, head_dim)
    torch.testing.assert_close(query, expected, **tolerance(dtype))
    torch.testing.assert_close(ours, theirs, **tolerance(dtype))
