"""Guesses whose tokens stay where they are drawn until all are: a forward for each place of a draft
is launched, and the host waits once, behind the last.

    host      launch 1, 2, 3, 4 | reads all four
    device    | 1 | 2 | 3 | 4   |

How many tokens each draft has is known before, so that a sequence leaves the rounds when it has
its own; one that could draw no token goes on in them, and what it gets is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from engine.runner.model_runner import DrawingRunner
from engine.step.drafters.draft_rows import Rounds
from engine.step.drafters.draft_sampling import Making


def guess_by_launches(
    runner: DrawingRunner, logits: torch.Tensor, makings: Ordered[Making], rounds: Rounds
) -> tuple[int, int]:
    """All tokens of the makings, of which the longest is the first; their rows are simple.
    `logits`: of what was read, float32 [num_makings, vocab_size], as `forward` has returned them.

    Returns in how many rounds, and the rows of those after the first.
    """
    first = [making.row(row) for row, making in enumerate(makings)]
    flights, num_rows = [runner.draw(logits, first)], 0
    for num_guessed in range(1, makings[0].num_tokens):
        going = [making for making in makings if making.num_tokens > num_guessed]
        rows = [making.row(row, num_unread=num_guessed) for row, making in enumerate(going)]
        batch = rounds.batch([0] * len(going), list(range(len(going))), num_guessed)
        flights.append(runner.launch(batch, rows, range(len(going))))
        num_rows += len(going)
    for flight in flights:
        for making, token_id in zip(makings, flight.tokens(), strict=False):
            making.take(token_id)
    return len(flights), num_rows
