"""Tokens that may not come, banned by one launch: a word of a mask says it of 32 tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels import token_mask
from kernels.door import require
from kernels.reference import mask_logits as reference
from kernels.token_mask import TokenMask
from kernels.triton.launch import on_device_of

CHUNK = tl.constexpr(4096)
"""Tokens of a row that a program looks at. Untuned: no GPU has run it."""
WORD_BITS = tl.constexpr(token_mask.WORD_BITS)
_WARPS = 8


# grid [num_rows, cdiv(vocab_size, CHUNK)]
@triton.jit(do_not_specialize=("row_stride", "vocab_size", "num_words"))
def ban_tokens(logits, rows, words, row_stride, vocab_size, num_words):
    index = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    is_token = token < vocab_size
    word = tl.load(words + index * num_words + token // WORD_BITS, mask=is_token, other=0)
    is_banned = ((word >> (token % WORD_BITS)) & 1) == 0
    row = logits + tl.load(rows + index) * row_stride
    tl.store(row + token, float("-inf"), mask=is_token & is_banned)


@torch.inference_mode()  # as the reference
def mask_logits(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[TokenMask]) -> None:
    """See the reference. Rows of `logits` may be strided. Beside them there are the masks alone."""
    reference.check_masks(logits, rows, masks)
    require(logits.stride(1) == 1, f"logits have strides {logits.stride()}; needed: dense rows")
    if rows:
        words = reference.sent(torch.stack([mask.words for mask in masks]), logits.device)
        ban(logits, reference.sent(torch.tensor(list(rows)), logits.device), words)


def ban(logits: torch.Tensor, rows: torch.Tensor, words: torch.Tensor) -> None:
    """All that is on the device: rows int64 [num_rows], words int32 [num_rows, num_words]."""
    num_rows, num_words = words.shape
    vocab_size = logits.shape[1]
    with on_device_of(logits):
        ban_tokens[num_rows, triton.cdiv(vocab_size, CHUNK.value)](
            logits, rows, words, logits.stride(0), vocab_size, num_words, num_warps=_WARPS
        )
