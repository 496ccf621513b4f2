"""The digest on the device is that of the reference, in every bit."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch.block_digest import block_digest as public_digest
from kernels.reference.block_digest import block_digest as reference_digest
from kernels.triton.block_digest import block_digest
from tests.kernels.kernel_sets import random
from tests.kernels.triton_places import DEVICES


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((7, 3, 2, 2, 9, 8), torch.float32),
        ((7, 3, 2, 2, 9, 8), torch.bfloat16),
        ((3, 1, 1, 1, 16, 576), torch.float32),  # a latent row: several tiles
        ((4, 2, 2, 1, 16, 68), torch.int8),  # quantized, with its scales
    ],
    ids=str,
)
def test_the_digest_is_that_of_the_reference(
    shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    pool = (random(*shape, dtype=torch.float32) * 40).to(dtype).to(device)
    ids = torch.tensor([2, 0, 1, 1], device=device)
    assert torch.equal(block_digest(pool, ids), reference_digest(pool, ids))
    assert block_digest(pool, ids[:0]).shape == (0, *shape[1:4])


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_gives_one_digest(device: str) -> None:
    pool = random(5, 2, 2, 2, 4, 8, dtype=torch.float32)
    on_device = public_digest(pool.to(device), [4, 1])
    assert on_device.device.type == device
    assert torch.equal(on_device.cpu(), reference_digest(pool, torch.tensor([4, 1])))


def test_a_pool_that_has_no_whole_words_is_refused() -> None:
    with pytest.raises(ValueError, match="a slice has 6 bytes; needed: a multiple of 8"):
        block_digest(torch.zeros(1, 1, 2, 1, 3, 1).half(), torch.tensor([0]))
