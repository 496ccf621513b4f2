"""Tokens drawn where the logits are: the rows' parameters go there in one copy, nothing waits.

One contract on every device: `kernels/reference/sample.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.memory.page_locked import send
from engine.sampling.logits import SamplingRow
from engine.sampling.random_numbers import noise_keys
from kernels.dispatch.sample import sample
from kernels.reference.row_argmax import row_argmax
from kernels.reference.sample import Draws, min_gap

_MOST = 2**31 - 1


def draw_on_device(
    logits: torch.Tensor, rows: Sequence[SamplingRow]
) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [num_rows, vocab_size], one for each of `rows` -> (maxima float32 [num_rows],
    ids int64 [num_rows]); greedy rows get the first of their maxima."""
    if all(row.params.is_greedy for row in rows):
        return row_argmax(logits)
    return sample(logits, draws_of(rows, logits.device))


def draws_of(rows: Sequence[SamplingRow], device: torch.device) -> Draws:
    """The parameters of the rows, and the keys for their next tokens."""
    params = [row.params for row in rows]
    columns = np.empty((5, len(rows)), dtype=np.float64)
    columns[0] = [0.0 if p.is_greedy else p.temperature for p in params]
    columns[1] = [min(p.top_k, _MOST) for p in params]
    columns[2] = [p.top_p for p in params]
    columns[3] = [min_gap(p.min_p, p.temperature) for p in params]
    columns[4] = noise_keys(
        [p.seed for p in params],
        [row.choice for row in rows],
        [row.position for row in rows],
    ).view(np.float64)  # their bits
    temperatures, top_k, top_p, min_gaps, keys = send(torch.from_numpy(columns), device)
    return Draws(
        temperatures=temperatures.float(),
        top_k=top_k.int(),
        top_p=top_p,
        min_gaps=min_gaps.float(),
        keys=keys.view(torch.int64),
        has_limits=any(p.top_k or p.top_p < 1.0 for p in params),
    )
