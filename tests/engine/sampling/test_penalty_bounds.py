"""Penalties that a client may choose leave every logit a number."""

from __future__ import annotations

import pytest
import torch

from cluster.errors import InvalidRequest
from cluster.sampling import LEAST_REPETITION_PENALTY, SamplingParams
from cluster.wire import sampling_from_wire, sampling_to_wire
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler

VOCAB_SIZE = 64
LARGEST = 1e4
"""Far above what models give."""


@pytest.mark.parametrize("penalty", [1e-40, 1e-9, 0.0, -1.0, 10.5, float("nan")])
def test_a_penalty_that_could_leave_no_number_is_refused(penalty: float) -> None:
    with pytest.raises(InvalidRequest, match="repetition_penalty is .*; allowed: "):
        SamplingParams(max_tokens=1, repetition_penalty=penalty).check(VOCAB_SIZE)


@pytest.mark.parametrize("penalty", [LEAST_REPETITION_PENALTY, 10.0])
def test_the_ends_of_what_is_allowed_pass_the_wire_and_give_a_token(penalty: float) -> None:
    params = SamplingParams(max_tokens=1, repetition_penalty=penalty, temperature=0.5)
    params.check(VOCAB_SIZE)
    told = sampling_from_wire(sampling_to_wire(params))
    told.check(VOCAB_SIZE)
    seen = list(range(VOCAB_SIZE))
    row = SamplingRow(logit_row=0, params=told, choice=0, token_ids=seen, num_prompt=VOCAB_SIZE)
    logits = torch.linspace(-LARGEST, LARGEST, VOCAB_SIZE)[None]
    assert Sampler(()).sample(logits, [row]) != [None]
