"""From logits to tokens.

    raw logits -> masks of grammars -> penalties, bias -> logprobs are taken here -> bans
               -> temperature -> truncation
               -> the highest sum of log probability and of noise that the token itself has

A step whose rows are all greedy and ask for nothing else is one argmax. On a GPU all rows are drawn
there, and the host waits once, for the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cluster.generation import GeneratedToken
from engine.memory.page_locked import SampledTokens, send
from engine.sampling.device_draw import draw_on_device
from engine.sampling.logits import SamplingRow, adjust, ban_ends
from kernels.dispatch.likeliest import likeliest
from kernels.dispatch.mask_logits import mask_logits


class Sampler:
    """Knows the model's end-of-text tokens; keeps nothing of a request between calls."""

    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self._eos_token_ids = tuple(eos_token_ids)

    def sample(
        self, logits: torch.Tensor, rows: Sequence[SamplingRow]
    ) -> list[GeneratedToken | None]:
        """`logits` is float32 [num_logits, vocab_size]; one token per row. What a grammar does not
        allow is made impossible in place: these logits are of this step alone.

        None for a row whose logits hold no finite maximum: the model failed there.
        """
        wanted = [row.logit_row for row in rows]
        masks = [row.allowed for row in rows] if any(r.allowed is not None for r in rows) else None
        if logits.is_cpu and all(row.params.is_greedy and row.is_plain for row in rows):
            found = likeliest(logits, wanted, masks)
            return [None if token_id is None else GeneratedToken(token_id) for token_id in found]
        if masks is not None:
            _mask(logits, rows)
        adjusted = _adjusted(_rows_of(logits, wanted), rows)  # [num_rows, vocab_size]
        allowed = self._allowed(adjusted, rows)
        found = SampledTokens(*draw_on_device(allowed, rows)).tokens()  # one wait
        tokens = [None if token_id is None else GeneratedToken(token_id) for token_id in found]
        return _with_logprobs(tokens, adjusted, rows)

    def _allowed(self, adjusted: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
        banned = [i for i, row in enumerate(rows) if row.bans_ends]
        if not banned:
            return adjusted
        allowed = adjusted.clone()
        for i in banned:
            ban_ends(allowed[i], rows[i], self._eos_token_ids)
        return allowed


def _mask(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> None:
    masks = {row.logit_row: row.allowed for row in rows if row.allowed is not None}
    mask_logits(logits, list(masks), list(masks.values()))


def _rows_of(logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
    if rows == list(range(len(logits))):
        return logits
    return logits[send(torch.tensor(rows), logits.device)]


def _adjusted(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    if not any(row.is_adjusted for row in rows):
        return logits
    logits = logits.clone()
    for i, row in enumerate(rows):
        if row.is_adjusted:
            adjust(logits[i], row)
    return logits


def _with_logprobs(
    tokens: list[GeneratedToken | None], adjusted: torch.Tensor, rows: Sequence[SamplingRow]
) -> list[GeneratedToken | None]:
    """Adds natural logarithms of the probabilities, after penalties and bias."""
    asked = [i for i, row in enumerate(rows) if row.params.logprobs is not None]
    if not asked:
        return tokens
    wanted = [rows[i].params.logprobs or 0 for i in asked]
    logits = _rows_of(adjusted, asked)  # [num_rows, vocab_size]
    whole = logits.logsumexp(dim=-1, keepdim=True)
    top = logits.topk(min(max(wanted), logits.shape[-1]), dim=-1)
    ids, values = top.indices.tolist(), (top.values - whole).tolist()
    for row, i in enumerate(asked):
        token = tokens[i]
        if token is not None:
            logprob = float(logits[row, token.token_id] - whole[row, 0])
            best = tuple(
                (other, value)
                for other, value in zip(ids[row], values[row], strict=True)
                if value > -torch.inf  # what a grammar does not allow is no alternative
            )[: wanted[row]]
            tokens[i] = GeneratedToken(token.token_id, logprob, best)
    return tokens
