"""Penalties from counts that are kept are those of the text counted anew, to the last bit."""

from __future__ import annotations

import random

import pytest
import torch

from cluster.sampling import SamplingParams
from engine.sampling.logits import SamplingRow, adjust
from engine.sampling.seen_tokens import SeenTokens, TokenCounts

VOCAB_SIZE = 97
PENALTIES = [
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7},
    {"frequency_penalty": -0.4},
    {"repetition_penalty": 0.8, "presence_penalty": 0.3, "frequency_penalty": 0.9},
]


def adjusted(row: SamplingRow, seed: int) -> torch.Tensor:
    logits = torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))
    adjust(logits, row)
    return logits


@pytest.mark.parametrize("penalties", PENALTIES)
@pytest.mark.parametrize("num_prompt", [0, 1, 150])
def test_a_text_that_grows_by_any_number_of_tokens_is_as_if_counted_anew(
    num_prompt: int, penalties: dict[str, float]
) -> None:
    chance = random.Random(num_prompt)
    params = SamplingParams(max_tokens=1, **penalties)
    text = [chance.randrange(VOCAB_SIZE) for _ in range(num_prompt)]
    seen = SeenTokens(num_prompt)
    for number in range(60):
        text += [chance.randrange(VOCAB_SIZE) for _ in range(chance.choice([0, 1, 1, 5]))]
        ahead = [chance.randrange(VOCAB_SIZE) for _ in range(chance.choice([0, 1, 4, 16]))]
        kept = SamplingRow(
            logit_row=0,
            params=params,
            choice=0,
            token_ids=text,
            num_prompt=num_prompt,
            num_ahead=len(ahead),
            ahead=ahead,
            seen=seen,
        )
        anew = SamplingRow(
            logit_row=0, params=params, choice=0, token_ids=text + ahead, num_prompt=num_prompt
        )
        assert torch.equal(adjusted(kept, number), adjusted(anew, number))
        assert (kept.position, kept.num_generated) == (anew.position, anew.num_generated)


def test_what_was_counted_is_not_read_again() -> None:
    """The text before is another by now, and nobody notices."""
    counts, text = TokenCounts(2), [9, 9, *range(50)]
    counts.of(text)
    text[:-1] = [0] * (len(text) - 1)
    text.append(7)
    ids, numbers = counts.of(text)
    assert ids.tolist() == list(range(50))
    assert numbers.tolist() == [2 if token == 7 else 1 for token in range(50)]


def test_guesses_count_for_their_row_alone() -> None:
    counts, text = TokenCounts(0), [1, 2]
    ids, numbers = counts.of(text, [2, 5, 5])
    assert dict(zip(ids.tolist(), numbers.tolist(), strict=True)) == {1: 1, 2: 2, 5: 2}
    ids, numbers = counts.of(text)
    assert dict(zip(ids.tolist(), numbers.tolist(), strict=True)) == {1: 1, 2: 1}
