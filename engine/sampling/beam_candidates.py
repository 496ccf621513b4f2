"""From rows of logits to the tokens that beams may go on with."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def candidates(
    logits: torch.Tensor, num: int, banned: Sequence[int] = ()
) -> list[tuple[tuple[int, float], ...] | None]:
    """`logits` is float32 [num_rows, vocab_size]; of each row its `num` likeliest tokens but
    `banned`, or all that there are, with the natural logarithms of their probabilities, the
    likeliest first.

    What is banned takes no part of the others' probability. None for a row without so many finite
    logits: the model failed there.
    """
    logprobs = torch.log_softmax(logits, dim=-1)  # [num_rows, vocab_size]
    if banned:
        logprobs[:, torch.tensor(banned, device=logits.device)] = -torch.inf
    num = min(num, logits.shape[-1] - len(banned))
    top = logprobs.topk(num, dim=-1)  # [num_rows, num]
    is_finite = top.values.isfinite().all(dim=-1).tolist()
    return [
        tuple(zip(ids, values, strict=True)) if finite else None
        for ids, values, finite in zip(
            top.indices.tolist(), top.values.tolist(), is_finite, strict=True
        )
    ]
