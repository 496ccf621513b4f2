"""A beam search in whole matrices, over a function of tokens: no pool, no batch, no blocks.

As transformers 5 has it, with scores of minus 1e9 for what is not there (`_beam_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cluster.beam_search import EarlyStopping
from cluster.sampling import SamplingParams

NOTHING = -1.0e9
Logits = Callable[[Sequence[int]], torch.Tensor]
"""Tokens -> float32 [vocab_size]."""


def searched(
    logits_of: Logits, prompt: list[int], params: SamplingParams, ends: Sequence[int]
) -> list[tuple[list[int], float]]:
    """The answers, best first, with their scores."""
    beams = params.beams
    assert beams is not None
    width, keep = beams.width, max(2, 1 + len(ends)) * beams.width
    running = [(list[int](), 0.0)] + [(list[int](), NOTHING)] * (width - 1)
    finished = [(list[int](), NOTHING, False)] * width
    for length in range(1, params.max_tokens + 1):
        rows = [torch.log_softmax(logits_of([*prompt, *tokens]), -1) for tokens, _ in running]
        if length <= params.min_tokens:
            for row in rows:
                row[list(ends)] = -torch.inf
        scores = torch.stack([row + known for row, (_, known) in zip(rows, running, strict=True)])
        values, flat = scores.flatten().topk(keep)
        vocab_size = scores.shape[1]
        found = [
            ([*running[at // vocab_size][0], at % vocab_size], value)
            for at, value in zip(flat.tolist(), values.tolist(), strict=True)
        ]
        stops = [tokens[-1] in ends or length == params.max_tokens for tokens, _ in found]
        running = [beam for beam, stop in zip(found, stops, strict=True) if not stop][:width]
        ended = [
            (tokens, value / length**beams.length_penalty, True)
            for (tokens, value), stop in zip(found[:width], stops, strict=False)
            if stop
        ]
        finished = sorted(finished + ended, key=lambda beam: -beam[1])[:width]
        if all(stops):
            break
        is_full = all(is_there for *_, is_there in finished)
        never = beams.early_stopping is EarlyStopping.NEVER_BETTER and beams.length_penalty > 0
        hoped = running[0][1] / (params.max_tokens if never else length) ** beams.length_penalty
        at_once = beams.early_stopping is EarlyStopping.AT_ONCE
        if is_full and (at_once or hoped <= finished[-1][1]):
            break
    return [(tokens, score) for tokens, score, _ in finished[: params.n]]
