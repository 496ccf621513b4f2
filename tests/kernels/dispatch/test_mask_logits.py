"""Masks of tokens: what they leave out cannot come, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kernels.cpu.mask_logits
from kernels.dispatch.mask_logits import mask_logits
from kernels.reference.mask_logits import mask_logits as reference_mask
from kernels.token_mask import TokenMask, num_words
from tests.kernels.kernel_sets import CPU_SETS, native_library_of, random

HAS_GPU = torch.cuda.is_available()
WIDTHS = [1, 7, 16, 17, 31, 32, 33, 48, 100, 1000, 5000]


@pytest.fixture(params=CPU_SETS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    library = None if request.param == "torch" else native_library_of(request.param)
    monkeypatch.setattr(kernels.cpu.mask_logits, "native_library", lambda: library)
    return str(request.param)


def masks_of(allowed: torch.Tensor) -> list[TokenMask]:
    """bool [num_rows, vocab_size] -> masks, written out bit by bit."""
    masks = []
    for row in allowed.tolist():
        words = [0] * num_words(len(row))
        for token, may_come in enumerate(row):
            words[token // 32] |= int(may_come) << (token % 32)
        masks.append(TokenMask(torch.tensor(words, dtype=torch.int64).to(torch.int32)))
    return masks


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_what_a_mask_leaves_out_cannot_come(implementation: str, width: int, share: float) -> None:
    generator = torch.Generator().manual_seed(width)
    logits = random(6, width, dtype=torch.float32)
    before, rows = logits.clone(), [4, 0, 5]
    allowed = torch.rand(3, width, generator=generator) < share
    mask_logits(logits, rows, masks_of(allowed))
    expected = before.clone()
    expected[rows] = before[rows].masked_fill(~allowed, -torch.inf)
    assert torch.equal(logits, expected)
    reference_mask(before, rows, masks_of(allowed))
    assert torch.equal(before, expected)


def test_rows_of_a_wider_tensor_are_masked_in_place(implementation: str) -> None:
    whole = random(3, 64, dtype=torch.float32)
    before = whole.clone()
    mask_logits(whole[:, :40], [1], [TokenMask(torch.zeros(2, dtype=torch.int32))])
    assert whole[1, :40].isneginf().all()
    whole[1, :40] = before[1, :40]
    assert torch.equal(whole, before)


def test_masks_of_another_size_or_for_no_row_are_refused(implementation: str) -> None:
    logits = random(2, 64, dtype=torch.float32)
    small, mask = TokenMask.blank(1), TokenMask.blank(2)
    for rows, masks in [([0], [small]), ([2], [mask]), ([0, 1], [mask])]:
        with pytest.raises(ValueError):
            mask_logits(logits, rows, masks)
    mask_logits(logits, [], [])


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that an operation makes beside the logits."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self._logits, self.num_bytes = logits.data_ptr(), 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.data_ptr() != self._logits:
            self.num_bytes = max(self.num_bytes, made.nbytes)
        return made


@pytest.mark.parametrize("num_rows", [8, 128])
def test_what_is_beside_the_logits_does_not_grow_with_the_rows(num_rows: int) -> None:
    """On a GPU all of it is outside the plan of memory."""
    width = 4000
    logits = torch.zeros(num_rows, width)
    mask = TokenMask(torch.full((num_words(width),), 5, dtype=torch.int32))
    with torch.inference_mode(), Largest(logits) as largest:
        reference_mask.__wrapped__(logits, list(range(num_rows)), [mask] * num_rows)  # type: ignore[attr-defined]
    assert 0 < largest.num_bytes <= max(8 * width * 4, num_rows * mask.words.nbytes)
    assert logits[:, [0, 2, 32]].eq(0.0).all() and logits[:, [1, 3]].isneginf().all()


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no CUDA device")
def test_a_gpu_masks_as_the_cpu_does() -> None:
    logits = random(19, 5003, dtype=torch.float32)
    allowed = torch.rand(19, 5003, generator=torch.Generator().manual_seed(0)) < 0.5
    expected = logits.masked_fill(~allowed, -torch.inf)
    there = logits.cuda()
    mask_logits(there, list(range(19)), masks_of(allowed))
    assert torch.equal(there.cpu(), expected)
