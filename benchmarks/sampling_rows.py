"""Sampling on a CPU beside reading its logits once: rows without limits, and with top-k and top-p.

Logits are peaked, as those of a trained model: the 128 likeliest tokens mostly tell what is kept.
In the flat ones a nucleus has thousands of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch

from benchmarks.cpu_floor import CpuFloor
from kernels.dispatch.sample import sample
from kernels.reference.sample import Draws

VOCAB_SIZE = 49_152
NUM_ROWS = (1, 16, 64)
TEMPERATURE = 0.8
KINDS = {
    "no limits": (0, 1.0),
    "top-p 0.9": (0, 0.9),
    "top-k 50 and top-p 0.9": (50, 0.9),
    "top-p 0.9 of flat logits": (0, 0.9),
}
"""(top_k, top_p)."""


def sampling_work(floor: CpuFloor) -> list[tuple[str, Callable[[], object], float]]:
    """(name, one call, milliseconds of its floor) for each kind and number of rows."""
    work = []
    for num_rows, (name, limits) in product(NUM_ROWS, KINDS.items()):
        logits = torch.randn(num_rows, VOCAB_SIZE) * 2
        if "flat" not in name:
            logits[:, :200] += torch.linspace(12.0, 4.0, 200)
        call = call_of(logits, draws_of(num_rows, *limits))
        work.append((f"sample, {name}, {num_rows} rows", call, floor.read_ms(logits.nbytes)))
    return work


def draws_of(num_rows: int, top_k: int, top_p: float) -> Draws:
    """The same for each row, but for its key."""
    return Draws(
        temperatures=torch.full((num_rows,), TEMPERATURE),
        top_k=torch.full((num_rows,), top_k, dtype=torch.int32),
        top_p=torch.full((num_rows,), top_p, dtype=torch.float64),
        min_gaps=torch.full((num_rows,), -torch.inf),
        keys=torch.randint(2**63 - 1, (num_rows,)),
        has_limits=top_k > 0 or top_p < 1.0,
    )


def call_of(logits: torch.Tensor, draws: Draws) -> Callable[[], object]:
    """One batch."""
    return lambda: sample(logits, draws)
