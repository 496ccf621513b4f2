"""Tokens that may not come get -infinity: bit i % 32 of word i // 32 says whether token i may."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.door import require, require_dtype

WORD_BITS = 32
_ROWS_AT_ONCE = 8
"""Of a vocabulary of 152k: 7 MB beside the logits, out of a plan's headroom."""


def check_masks(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[torch.Tensor]) -> None:
    """The door: logits float32 [num_logits, vocab_size]; for each of `rows` a mask, int32
    [num_words] on the host."""
    require_dtype("logits", logits, torch.float32)
    require(len(rows) == len(masks), f"{len(rows)} rows and {len(masks)} masks; needed: as many")
    require(
        not rows or 0 <= min(rows) <= max(rows) < logits.shape[0],
        f"rows {list(rows)[:8]} of {logits.shape[0]}",
    )
    check_words(masks, logits.shape[1])


def check_words(masks: Sequence[torch.Tensor | None], vocab_size: int) -> None:
    """Of each that is there: int32 [num_words] on the host."""
    shape = (num_words(vocab_size),)
    for mask in masks:  # many, and their message takes longer than the check
        if mask is None or (mask.shape == shape and mask.dtype is torch.int32 and _is_plain(mask)):
            continue
        raise ValueError(
            f"a mask is {mask.dtype} {tuple(mask.shape)}; needed: int32 {shape}, contiguous, "
            "on the host"
        )


def _is_plain(mask: torch.Tensor) -> bool:
    return mask.is_cpu and mask.is_contiguous()


def num_words(vocab_size: int) -> int:
    """Of one mask."""
    return -(-vocab_size // WORD_BITS)


@torch.inference_mode()  # a runner's logits may be of that mode, and are changed in no other
def mask_logits(logits: torch.Tensor, rows: Sequence[int], masks: Sequence[torch.Tensor]) -> None:
    """In place; other rows are left as they are. See `check_masks`. A few rows at a time: what is
    beside the logits does not grow with the step."""
    check_masks(logits, rows, masks)
    if not rows:
        return
    words = sent(torch.stack(list(masks)), logits.device)  # [num_rows, num_words]
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
