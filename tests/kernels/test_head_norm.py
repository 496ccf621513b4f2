"""head_norm against the reference, and the reference against torch's own norm."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.dispatch.kernel_sets import REFERENCE
from tests.kernels.kernel_sets import DTYPES, NATIVE_SETS, cpu_set, random, tolerance

EPS = 1e-6


def weights(head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    query = random(head_dim, dtype=torch.float32, seed=1)
    return query, random(head_dim, dtype=torch.float32, seed=2)


def test_the_reference_norms_queries_and_keys_and_leaves_values() -> None:
    num_heads, num_kv_heads, head_dim = 4, 2, 8
    qkv = random(5, 8 * head_dim, dtype=torch.float32)
    before = qkv.clone().view(5, 8, head_dim)
    query_weight, key_weight = weights(head_dim)
    REFERENCE.head_norm(qkv, query_weight, key_weight, EPS, num_heads, num_kv_heads)
    after = qkv.view(5, 8, head_dim)
    queries = F.rms_norm(before[:, :4], (head_dim,), query_weight, EPS)
    keys = F.rms_norm(before[:, 4:6], (head_dim,), key_weight, EPS)
    torch.testing.assert_close(after[:, :4], queries)
    torch.testing.assert_close(after[:, 4:6], keys)
    assert torch.equal(after[:, 6:], before[:, 6:])


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_tokens", "num_heads", "num_kv_heads", "head_dim"),
    [(0, 4, 2, 64), (1, 16, 8, 128), (9, 4, 1, 256), (20, 3, 3, 6)],
)
def test_the_native_head_norm_is_that_of_the_reference(
    num_tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    width = (num_heads + 2 * num_kv_heads) * head_dim
    ours = random(num_tokens, width, dtype=dtype) * 5
    expected = ours.clone()
    for qkv, kernels in ((ours, cpu_set("native")), (expected, REFERENCE)):
        kernels.head_norm(qkv, *weights(head_dim), EPS, num_heads, num_kv_heads)
    torch.testing.assert_close(ours, expected, **tolerance(dtype))


@pytest.mark.usefixtures("every_level")
def test_a_row_has_the_same_bits_alone() -> None:
    kernels, args = cpu_set("native"), (*weights(64), EPS, 4, 2)
    together = random(30, 8 * 64, dtype=torch.bfloat16)
    alone = together[17:18].clone()
    kernels.head_norm(together, *args)
    kernels.head_norm(alone, *args)
    assert torch.equal(together[17:18], alone)


@pytest.mark.parametrize("name", ["reference", *NATIVE_SETS])
def test_widths_and_dtypes_that_do_not_fit_are_refused(name: str) -> None:
    kernels, (query_weight, key_weight) = cpu_set(name), weights(8)
    with pytest.raises(ValueError, match="qkv"):
        kernels.head_norm(torch.zeros(2, 60), query_weight, key_weight, EPS, 4, 2)
    with pytest.raises(ValueError, match="key_weight"):
        kernels.head_norm(torch.zeros(2, 64), query_weight, key_weight.bfloat16(), EPS, 4, 2)
