"""Masks by one launch: bit by bit what the reference makes of them."""

from __future__ import annotations

import pytest
import torch

from kernels.reference.mask_logits import mask_logits as reference_mask
from kernels.token_mask import TokenMask
from kernels.triton.mask_logits import CHUNK, mask_logits
from tests.kernels.dispatch.test_mask_logits import masks_of
from tests.kernels.kernel_sets import random
from tests.kernels.triton_places import DEVICES

WIDTHS = [1, 31, 32, 33, 1000, CHUNK.value, 2 * CHUNK.value + 77]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_what_a_mask_leaves_out_cannot_come_and_nothing_else_changes(
    share: float, width: int, device: str
) -> None:
    logits = random(6, width, dtype=torch.float32)
    logits[0, width // 2], logits[4, 0] = torch.nan, torch.inf
    allowed = torch.rand(3, width, generator=torch.Generator().manual_seed(width)) < share
    allowed[0, width - 1] = True
    expected, rows, masks = logits.clone(), [4, 0, 5], masks_of(allowed)
    reference_mask(expected, rows, masks)
    ours = logits.to(device)
    mask_logits(ours, rows, masks)
    assert torch.equal(ours.cpu().view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_a_wider_tensor_are_masked_in_place(device: str) -> None:
    whole = random(3, 64, dtype=torch.float32).to(device)
    expected = whole.cpu()
    expected[1, :40] = -torch.inf
    mask_logits(whole[:, :40], [1], [TokenMask(torch.zeros(2, dtype=torch.int32))])
    assert torch.equal(whole.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_logits_of_a_runner_are_masked_outside_its_mode(device: str) -> None:
    with torch.inference_mode():
        logits = torch.zeros(2, 50, device=device)
    mask_logits(logits, [0], [TokenMask(torch.tensor([1, 0], dtype=torch.int32))])
    assert logits[0, 0] == 0.0 and logits[0, 1:].isneginf().all() and not logits[1].any()


def test_masks_of_another_size_or_for_no_row_are_refused() -> None:
    logits = random(2, 64, dtype=torch.float32)
    small, mask = TokenMask.blank(1), TokenMask.blank(2)
    for rows, masks in [([0], [small]), ([2], [mask]), ([0, 1], [mask])]:
        with pytest.raises(ValueError):
            mask_logits(logits, rows, masks)
    with pytest.raises(ValueError, match=r"strides \(1, 2\); needed: dense rows"):
        mask_logits(random(64, 2, dtype=torch.float32).T, [0], [mask])
    mask_logits(logits, [], [])
    assert logits.isfinite().all()
