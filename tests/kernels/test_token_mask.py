"""A mask knows where its words are, and takes none that kernels could not read."""

from __future__ import annotations

import pytest
import torch

from kernels.token_mask import TokenMask, num_words


def test_a_token_may_come_whose_bit_is_set() -> None:
    mask = TokenMask(torch.tensor([1 << 5, -(1 << 31)], dtype=torch.int32))
    assert [i for i in range(64) if mask.allows(i)] == [5, 63]


def test_masks_of_one_tensor_lie_in_its_memory() -> None:
    bits = torch.zeros((3, 2), dtype=torch.int32)
    masks = TokenMask.rows_of(bits)
    bits[1, 0] = 1
    assert [mask.allows(0) for mask in masks] == [False, True, False]
    assert [mask.address - bits.data_ptr() for mask in masks] == [0, 8, 16]
    assert {mask.num_words for mask in masks} == {2}


@pytest.mark.parametrize(
    "words",
    [
        torch.zeros(2, dtype=torch.int64),
        torch.zeros((1, 2), dtype=torch.int32),
        torch.zeros(4, dtype=torch.int32)[::2],
    ],
)
def test_words_that_kernels_could_not_read_are_refused(words: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="needed: int32, one dimension, contiguous"):
        TokenMask(words)


@pytest.mark.parametrize(("vocab_size", "words"), [(1, 1), (32, 1), (33, 2), (49152, 1536)])
def test_a_mask_has_a_bit_for_each_token(vocab_size: int, words: int) -> None:
    assert num_words(vocab_size) == words
