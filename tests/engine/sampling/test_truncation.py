"""What is kept, against a sort of the whole row; and whole rows against groups of rows."""

from __future__ import annotations

import random

import pytest
import torch

from cluster.sampling import SamplingParams
from engine.sampling.draw import Drawer
from engine.sampling.logits import SamplingRow
from engine.sampling.row_weights import RowWeights
from engine.sampling.truncation import candidates, cut


def random_params(chance: random.Random) -> SamplingParams:
    return SamplingParams(
        max_tokens=1,
        temperature=chance.choice([0.3, 1.0, 2.0]),
        top_k=chance.choice([0, 1, 5, 120, 128, 200, 399]),
        top_p=chance.choice([1.0, 0.99, 0.9, 0.5, 1e-6]),
        min_p=chance.choice([0.0, 0.0, 0.01, 0.3]),
        seed=chance.randrange(2**64),
    )


def kept_by_sorting(logits: torch.Tensor, params: SamplingParams) -> set[int]:
    weights = ((logits.double() - logits.max()) / params.temperature).exp()
    order = weights.argsort(descending=True)[: params.top_k or None]
    share = weights[order] / weights[order].sum()
    inside = (share.cumsum(0) - share < params.top_p) & (weights[order] >= params.min_p)
    inside[0] = True
    return set(order[inside].tolist())


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_keep_what_a_sort_of_the_row_keeps(seed: int) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    logits = torch.randn(1, 400) * chance.choice([0.5, 2.0, 6.0])
    params = random_params(chance)
    expected = kept_by_sorting(logits[0], params)
    temperatures = torch.tensor([[params.temperature]])
    _, weights = next(RowWeights().groups(logits, [0], temperatures))
    whole = weights.double().sum(-1, keepdim=True)
    few = candidates(logits, temperatures, whole, params=[params], rows=[0])
    if few.rows:
        assert set(few.token_ids[few.weights > 0].tolist()) == expected
    else:
        assert len(expected) > 100 or params.top_k > 100
    row = weights[0, :400]
    cut(row, params)
    assert set(row.nonzero()[:, 0].tolist()) == expected


def test_tokens_do_not_depend_on_the_group_their_row_falls_into() -> None:
    chance = random.Random(1)
    torch.manual_seed(1)
    logits = torch.randn(30, 400) * 2
    rows = [
        SamplingRow(
            logit_row=i, params=random_params(chance), choice=0, token_ids=[0], num_prompt=1
        )
        for i in range(30)
    ]
    together = Drawer().draw(logits, rows).tolist()
    alone = [int(Drawer().draw(logits[i : i + 1], rows[i : i + 1])) for i in range(30)]
    assert together == alone
    for i, token_id in enumerate(together):
        assert token_id in kept_by_sorting(logits[i], rows[i].params)
