"""How likely given tokens are by rows of logits, and what was likelier."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cluster.generation import PromptToken


def score(logits: torch.Tensor, token_ids: Sequence[int], *, num_top: int) -> list[PromptToken]:
    """`logits` is float32 [num_rows, vocab_size], with one of `token_ids` for each row.

    Natural logarithms of the model's own distribution: no penalty, bias or temperature.
    """
    targets = torch.tensor(token_ids, device=logits.device)[:, None]  # [num_rows, 1]
    whole = logits.logsumexp(dim=-1, keepdim=True)  # [num_rows, 1]
    chosen = logits.gather(-1, targets)  # [num_rows, 1]
    ranks = (logits > chosen).sum(dim=-1) + 1
    top = logits.topk(min(num_top, logits.shape[-1]), dim=-1)  # [num_rows, num_top]
    logprobs, top_logprobs = (chosen - whole)[:, 0].tolist(), (top.values - whole).tolist()
    return [
        PromptToken(token_id, logprob, rank, tuple(zip(ids, values, strict=True)))
        for token_id, logprob, rank, ids, values in zip(
            token_ids, logprobs, ranks.tolist(), top.indices.tolist(), top_logprobs, strict=True
        )
    ]
