"""Tokens that may not come get -infinity: bit i % 32 of word i // 32 says whether token i may."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.door import require, require_dtype
from kernels.token_mask import TokenMask, num_words

_ROWS_AT_ONCE = 8
"""Of a vocabulary of 152k: 7 MB beside the logits, out of a plan's headroom."""


def check_masks(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[TokenMask]) -> None:
    """The door: logits float32 [num_logits, vocab_size]; for each of `rows` a mask."""
    require_dtype("logits", logits, torch.float32)
    require(len(rows) == len(masks), f"{len(rows)} rows and {len(masks)} masks; needed: as many")
    require(
        not rows or 0 <= min(rows) <= max(rows) < logits.shape[0],
        f"rows {list(rows)[:8]} of {logits.shape[0]}",
    )
    check_words(masks, logits.shape[1])


def check_words(masks: Sequence[TokenMask | None], vocab_size: int) -> None:
    """Each that is there has a bit for each token."""
    needed = num_words(vocab_size)
    for mask in masks:
        if mask is not None and mask.num_words != needed:
            raise ValueError(f"a mask has {mask.num_words} words; needed: {needed}")


@torch.inference_mode()  # a runner's logits may be of that mode, and are changed in no other
def mask_logits(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[TokenMask]) -> None:
    """In place; other rows are left as they are. See `check_masks`. A few rows at a time: what is
    beside the logits does not grow with the step."""
    check_masks(logits, rows, masks)
    if not rows:
        return
    together = torch.stack([mask.words for mask in masks])
    words = sent(together, logits.device)  # [num_rows, num_words]
    index = sent(torch.tensor(list(rows)), logits.device)  # [num_rows]
    octets = words.view(torch.uint8)  # [num_rows, 4 * num_words], the lowest bits first
    of_bit = torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8)
    of_bit = sent(of_bit, logits.device)  # [8]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        own = index[some]
        bits = octets[some, :, None] & of_bit  # uint8 [_ROWS_AT_ONCE, 4 * num_words, 8]
        is_banned = bits.flatten(1)[:, : logits.shape[1]] == 0  # [_ROWS_AT_ONCE, vocab_size]
        logits[own] = logits[own].masked_fill_(is_banned, -torch.inf)


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy for the current stream's work, without waiting for what a GPU is still at."""
    pinned = values.pin_memory() if device.type == "cuda" else values
    return pinned.to(device, non_blocking=True)
