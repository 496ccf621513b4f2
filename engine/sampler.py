"""From logits to tokens.

    raw logits -> penalties, bias -> logprobs are taken here -> bans -> temperature -> truncation
               -> inverse of the cumulative distribution at a counter-based random number

A step whose rows are all greedy and ask for nothing else is one argmax.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cluster.generation import GeneratedToken
from engine.logits import SamplingRow, adjust, ban_ends
from engine.sampling_random import uniforms
from engine.truncation import truncate

_COLDEST = 1e-6
"""Lowest temperature that float32 divides by safely; below it only the likeliest is left."""


class Sampler:
    """Stateless but for the model's end-of-text tokens."""

    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self._eos_token_ids = tuple(eos_token_ids)

    def sample(
        self, logits: torch.Tensor, rows: Sequence[SamplingRow]
    ) -> list[GeneratedToken | None]:
        """`logits` is float32 [num_logits, vocab_size]; one token per row.

        None for a row whose logits hold no finite maximum: the model failed there.
        """
        chosen = _rows_of(logits, [row.logit_row for row in rows])  # [num_rows, vocab_size]
        if all(row.is_plain for row in rows):
            values, ids = chosen.max(dim=-1)
            return _tokens(ids.tolist(), values.isfinite().tolist())
        adjusted = _adjusted(chosen, rows)
        allowed = self._allowed(adjusted, rows)
        values, ids = allowed.max(dim=-1)
        is_finite = values.isfinite().tolist()
        drawn = [i for i, row in enumerate(rows) if not row.params.is_greedy and is_finite[i]]
        if drawn:
            ids[drawn] = _draw(_rows_of(allowed, drawn), [rows[i] for i in drawn])
        tokens = _tokens(ids.tolist(), is_finite)
        return _with_logprobs(tokens, adjusted, rows)

    def _allowed(self, adjusted: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
        banned = [i for i, row in enumerate(rows) if row.bans_ends]
        if not banned:
            return adjusted
        allowed = adjusted.clone()
        for i in banned:
            ban_ends(allowed[i], rows[i], self._eos_token_ids)
        return allowed


def _rows_of(logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
    return logits if rows == list(range(len(logits))) else logits[rows]


def _adjusted(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    if not any(row.is_adjusted for row in rows):
        return logits
    logits = logits.clone()
    for i, row in enumerate(rows):
        if row.is_adjusted:
            adjust(logits[i], row)
    return logits


def _draw(allowed: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    """float32 [num_rows, vocab_size] -> token ids, int64 [num_rows]."""
    params = [row.params for row in rows]
    temperature = allowed.new_tensor([max(p.temperature, _COLDEST) for p in params])[:, None]
    scaled = (allowed - allowed.amax(dim=-1, keepdim=True)) / temperature  # at most 0
    if any(p.top_k or p.top_p < 1.0 or p.min_p for p in params):
        scaled = truncate(scaled, params)
    cumulative = scaled.exp().cumsum(dim=-1, dtype=torch.float64)  # [num_rows, vocab_size]
    numbers = uniforms(
        [p.seed for p in params],
        [row.choice for row in rows],
        [len(row.token_ids) for row in rows],
    )
    total = cumulative[:, -1:]
    targets = torch.from_numpy(numbers).to(allowed.device)[:, None] * total
    targets = targets.minimum(total.nextafter(torch.zeros_like(total)))  # rounding met the end
    return torch.searchsorted(cumulative, targets, right=True)[:, 0]


def _tokens(ids: list[int], is_finite: list[bool]) -> list[GeneratedToken | None]:
    return [
        GeneratedToken(token_id) if finite else None
        for token_id, finite in zip(ids, is_finite, strict=True)
    ]


def _with_logprobs(
    tokens: list[GeneratedToken | None], adjusted: torch.Tensor, rows: Sequence[SamplingRow]
) -> list[GeneratedToken | None]:
    """Adds natural logarithms of the probabilities, after penalties and bias."""
    for i, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        if row.params.logprobs is None or token is None:
            continue
        logprobs = adjusted[i].log_softmax(dim=-1)  # [vocab_size]
        top = logprobs.topk(min(row.params.logprobs, len(logprobs)))
        likeliest = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        tokens[i] = GeneratedToken(token.token_id, float(logprobs[token.token_id]), likeliest)
    return tokens
